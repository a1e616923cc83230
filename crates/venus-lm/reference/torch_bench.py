"""Measures PyTorch on what examples/bench.rs measures: best of several rounds, one thread by processor time, more by wall clock.

    pip install torch transformers accelerate
    python crates/venus-lm/reference/torch_bench.py tiny|DIR [THREADS]

The model is that of Hugging Face transformers (eager, SDPA attention, DynamicCache).
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM

threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
torch.set_num_threads(threads)
clock = time.process_time if threads == 1 else time.perf_counter
if sys.argv[1] == "tiny":
    config = LlamaConfig(
        vocab_size=600, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
else:
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
small = sum(p.numel() for p in model.parameters()) < 20_000_000
rounds = 5 if small else 2


def best(units, work):
    work()
    speeds = []
    for _ in range(rounds):
        start = clock()
        work()
        speeds.append(units / (clock() - start))
    return max(speeds)


vocab = model.config.vocab_size
ids = torch.arange(512).remainder(vocab)[None]
with torch.no_grad():
    speed = best(512, lambda: model(ids, logits_to_keep=1))
    print(f"prefill of 512: {speed:.1f}", flush=True)
    for batch in [1, 8, 32] if small else [1, 8]:
        steps = 16
        cache = DynamicCache()
        model(ids[:, :128].expand(batch, 128), past_key_values=cache, logits_to_keep=1)

        def decode():
            for _ in range(steps):
                model(ids[:, :1].expand(batch, 1), past_key_values=cache)
            cache.crop(-steps)

        print(f"decode, batch {batch}, context 128: {best(batch * steps, decode):.1f}", flush=True)
sequences = 8 if small else 1
tokens = ids[:, :256].expand(sequences, 256)


def train():
    model.zero_grad()
    logits = model(tokens).logits[:, :-1]
    (logits.square().mean() + logits.mean()).backward()


if threads == 1:
    speed = best(sequences * 256, train)
    print(f"forward and backward, {sequences} x 256: {speed:.1f} ({1e6 / speed:.0f} ms per 1000)")
