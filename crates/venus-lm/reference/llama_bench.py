"""Measures llama.cpp on what examples/bench.rs measures, with the library itself and without sampling or a server.

    npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf node-llama-cpp-linux-x64-3.22.1.tgz
    pip install gguf safetensors numpy
    python crates/venus-lm/reference/llama_bench.py gguf DIR FILE.gguf f32|f16
    python crates/venus-lm/reference/llama_bench.py run FILE.gguf package/bins/linux-x64 THREADS

DIR is the SmolLM2-135M-Instruct that `examples/convert.rs` made. The npm package carries llama.cpp v0.5.0 built for each
kind of processor, AVX-512 included. `run` first checks that the model answers as transformers does.
"""

import ctypes
import json
import pathlib
import sys
import time

LENGTH, CONTEXT, STEPS, ROUNDS = 512, 128, 16, 2
BATCHES = [1, 8]
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def write_gguf(source, target, kind):
    import gguf
    import numpy as np
    from safetensors.numpy import load_file

    config = json.loads((source / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    for name, value in load_file(source / "model.safetensors").items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        # llama.cpp turns neighbouring pairs, Hugging Face the two halves of a head.
        for projection, count in [("q_proj", heads), ("k_proj", kv_heads)]:
            if projection in name:
                value = value.reshape(count, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        value = value.astype(np.float16 if kind == "f16" and value.ndim == 2 else np.float32)
        writer.add_tensor(gguf_name(name), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name):
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


class Params(ctypes.Structure):
    """llama_model_params or llama_context_params: larger than either, so that only the fields used have to be known."""

    _fields_ = [("words", ctypes.c_uint32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


class Llama:
    """A model with room for the largest batch; every sequence has a cache of its own."""

    def __init__(self, file, library, threads):
        ggml = ctypes.CDLL(next(library.glob("libggml.v*so")), ctypes.RTLD_GLOBAL)
        ggml.ggml_backend_load_all_from_path(str(library).encode())
        self.lib = lib = ctypes.CDLL(next(library.glob("libllama.v*so")))
        lib.llama_log_set(LOG, None)
        lib.llama_backend_init()
        for name in ["model", "context"]:
            getattr(lib, f"llama_{name}_default_params").restype = Params
        lib.llama_model_load_from_file.argtypes, lib.llama_model_load_from_file.restype = [ctypes.c_char_p, Params], ctypes.c_void_p
        lib.llama_init_from_model.argtypes, lib.llama_init_from_model.restype = [ctypes.c_void_p, Params], ctypes.c_void_p
        lib.llama_get_memory.argtypes, lib.llama_get_memory.restype = [ctypes.c_void_p], ctypes.c_void_p
        lib.llama_memory_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        lib.llama_batch_init.restype = Batch
        lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
        lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        lib.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        model = lib.llama_model_load_from_file(str(file).encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        assert list(params.words[:4]) == [512, 2048, 512, 1], "llama_context_params begins otherwise: use v0.5.0"
        sizes = [max(BATCHES) * (LENGTH + 64), LENGTH, LENGTH, max(BATCHES)]
        params.words[:4] = sizes  # n_ctx, n_batch, n_ubatch, n_seq_max
        self.context = model and lib.llama_init_from_model(model, params)
        if not self.context:
            sys.exit(f"llama.cpp can't load {file}")
        lib.llama_set_n_threads(self.context, threads, threads)
        self.memory = lib.llama_get_memory(self.context)
        self.batch = lib.llama_batch_init(LENGTH, 0, 1)

    def forward(self, rows, logits):
        """`rows` of (token, position, sequence); logits of the last row, or of all."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits == "all" or i == len(rows) - 1
        status = self.lib.llama_decode(self.context, batch)
        assert status == 0, status
        return self.lib.llama_get_logits_ith(self.context, len(rows) - 1)

    def cut(self, sequence, length):
        self.lib.llama_memory_seq_rm(self.memory, sequence, length, -1)


def check(llama, vocab):
    fixture = pathlib.Path(__file__).parent.parent / "tests/fixtures/smollm2.json"
    for prompt in json.loads(fixture.read_text())["prompts"]:
        tokens = prompt["tokens"] + prompt["greedy"]
        llama.cut(0, 0)
        logits = llama.forward([(token, i, 0) for i, token in enumerate(tokens)], "last")[:vocab]
        top, expected = max(range(vocab), key=logits.__getitem__), prompt["top_ids"][-1][0]
        assert top == expected, f"token {top} instead of {expected}: another model, or wrongly converted"
    llama.cut(0, 0)


def measure(label, units, threads, work):
    """As in bench.rs: one thread by processor time, more by the clock on the wall."""
    clock = time.process_time if threads == 1 else time.perf_counter
    work()
    best = 0.0
    for _ in range(ROUNDS):
        start = clock()
        work()
        best = max(best, units / (clock() - start))
    print(f"{label}: {best:.1f}", flush=True)


def run(file, library, threads):
    vocab = 49152
    llama = Llama(file, library, threads)
    check(llama, vocab)
    tokens = [(i * i * 31 + i * 7) % vocab for i in range(LENGTH)]
    prompt = [(token, i, 0) for i, token in enumerate(tokens)]

    def prefill():
        llama.cut(0, 0)
        llama.forward(prompt, "last")

    measure(f"prefill of {LENGTH}", LENGTH, threads, prefill)
    for batch in BATCHES:
        for sequence in range(batch):
            llama.cut(sequence, 0)
            llama.forward([(token, i, sequence) for token, i, _ in prompt[:CONTEXT]], "last")

        def decode():
            for sequence in range(batch):
                llama.cut(sequence, CONTEXT)
            for step in range(STEPS):
                llama.forward([(tokens[step], CONTEXT + step, sequence) for sequence in range(batch)], "all")

        measure(f"decode, batch {batch}, context {CONTEXT}", batch * STEPS, threads, decode)


if sys.argv[1] == "gguf":
    write_gguf(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4])
else:
    run(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve(), int(sys.argv[4]))
