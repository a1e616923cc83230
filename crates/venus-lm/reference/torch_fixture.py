"""Writes tests/fixtures/{llama,qwen3}: tiny random models of Hugging Face transformers with their logits, loss and gradients.

    python3 -m venv /tmp/venus-reference && /tmp/venus-reference/bin/pip install torch transformers safetensors
    /tmp/venus-reference/bin/python crates/venus-lm/reference/torch_fixture.py

The committed files came from torch 2.15.0 and transformers 5.24.0. The expected numbers are computed in double precision.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

SEQUENCES = [[1, 5, 9, 30, 2, 2, 17], [4, 4, 8], [29, 0, 3, 12, 11, 10, 9, 8, 7, 31, 6]]
SHAPE = dict(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    attn_implementation="eager",
)


def fixture(name, model):
    """Saves the model as transformers does, and beside it what it computes."""
    torch.manual_seed(7)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 1:
                tensor.uniform_(0.5, 1.5)
            else:
                tensor.normal_(std=0.4)
    out = pathlib.Path(__file__).parent.parent / "tests/fixtures" / name
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    model = model.double()
    expected, losses = {}, []
    for i, tokens in enumerate(SEQUENCES):
        logits = model(torch.tensor([tokens])).logits[0]
        expected[f"logits.{i}"] = logits.detach().float()
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:]), reduction="sum"))
    loss = sum(losses)
    loss.backward()
    expected["loss"] = loss.detach().float().reshape(1)
    for tensor_name, tensor in model.named_parameters():
        expected[f"gradient.{tensor_name}"] = tensor.grad.float()
    save_file(expected, out / "expected.safetensors")
    (out / "sequences.json").write_text(json.dumps(SEQUENCES) + "\n")


fixture("llama", LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True, rope_theta=100.0)))
fixture("qwen3", Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=6, tie_word_embeddings=False, rms_norm_eps=1e-3)))
