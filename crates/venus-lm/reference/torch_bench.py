"""Measures PyTorch on what examples/bench.rs measures: one thread, processor time, best of several rounds.

    /tmp/venus-reference/bin/python crates/venus-lm/reference/torch_bench.py tiny|DIR

The model is that of Hugging Face transformers (eager, SDPA attention, DynamicCache).
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
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
        start = time.process_time()
        work()
        speeds.append(units / (time.process_time() - start))
    return max(speeds)


vocab = model.config.vocab_size
ids = torch.arange(512).remainder(vocab)[None]
with torch.no_grad():
    speed = best(512, lambda: model(ids, logits_to_keep=1))
    print(f"prefill of 512: {speed:.0f}", flush=True)
    for batch in [1, 8, 32]:
        steps = 16 if small else 4

        def decode(cache):
            for _ in range(steps):
                model(ids[:, :1].expand(batch, 1), past_key_values=cache)

        caches = []
        for _ in range(rounds + 1):
            cache = DynamicCache()
            model(ids[:, :128].expand(batch, 128), past_key_values=cache, logits_to_keep=1)
            caches.append(cache)
        print(f"decode, batch {batch}, context 128: {best(batch * steps, lambda: decode(caches.pop())):.0f}", flush=True)
sequences = 8 if small else 1
tokens = ids[:, :256].expand(sequences, 256)


def train():
    model.zero_grad()
    logits = model(tokens).logits[:, :-1]
    (logits.square().mean() + logits.mean()).backward()


speed = best(sequences * 256, train)
print(f"forward and backward, {sequences} x 256: {speed:.0f} ({1e6 / speed:.0f} ms per 1000)")
