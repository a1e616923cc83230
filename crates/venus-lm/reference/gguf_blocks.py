"""Prints the table in src/gguf/tests.rs: how the `gguf` Python package (0.19.0) dequantises one block of each type.

    pip install gguf numpy && python crates/venus-lm/reference/gguf_blocks.py
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}

print("const BLOCKS: [(u32, &[usize], f64, f64); 8] = [")
for kind, halves in HALVES.items():
    _, size = GGML_QUANT_SIZES[kind]
    block = np.array([((i * 89 + 41) ^ (i * i * 7)) & 255 for i in range(size)], dtype=np.uint8)
    for n, at in enumerate(halves):
        block[at : at + 2] = np.array([0.25 + 0.125 * n], dtype=np.float16).view(np.uint8)
    out = dequantize(block, kind).astype(np.float64).reshape(-1)
    print(f"    ({int(kind)}, &{halves}, {out.sum():.4f}, {(out * np.arange(out.size)).sum():.4f}),")
print("];")
