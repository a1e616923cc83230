"""The step of `examples/step.rs` in PyTorch: forward, clipped policy loss, backward, AdamW.

    pip install torch && python crates/venus-trainer/reference/throughput.py [THREADS]

Same shape (hidden 128, 4 layers, 4 heads, 2 KV heads, feed-forward 384, 600 tokens, tied), same 96 sequences, loss on the
same rows. Sequences are sorted by length and padded in micro-batches of at most 4096 tokens, since eager PyTorch has no
ragged attention on the CPU; rates count real tokens only, as the Rust example's do. On a busy machine compare CPU seconds.
"""

import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, VOCAB = 128, 4, 4, 2, 32, 384, 600
STEPS, CAP = 5, 4096


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.RMSNorm(HIDDEN, eps=1e-5), torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = torch.nn.Linear(HIDDEN, (HEADS + 2 * KV) * HEAD, bias=False)
        self.out = torch.nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate_up = torch.nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = torch.nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([HEADS * HEAD, KV * HEAD, KV * HEAD], -1)
        q, k, v = (t.view(batch, length, -1, HEAD).transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, HIDDEN)
        torch.nn.init.normal_(self.embed.weight, std=0.06)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        angles = torch.outer(torch.arange(512.0), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens, rows):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        return self.norm(x)[rows] @ self.embed.weight.T


def sequences():
    for index in range(96):
        length = 150 + index * 37 % 201
        tokens = torch.tensor([(position * 31 + index * 17) % VOCAB for position in range(length)])
        drawn = torch.tensor([position for position in range(length) if position // 10 % 2])
        yield tokens[: drawn[-1]], drawn - 1, tokens[drawn], float(index % 3 - 1)


def micro_batches():
    batch = []
    for sequence in sorted(sequences(), key=lambda sequence: -len(sequence[0])):
        if batch and (len(batch) + 1) * len(batch[0][0]) > CAP:
            yield pad(batch)
            batch = []
        batch.append(sequence)
    yield pad(batch)


def pad(batch):
    tokens = torch.nn.utils.rnn.pad_sequence([tokens for tokens, *_ in batch], batch_first=True)
    at = torch.cat([torch.full_like(rows, index) for index, (_, rows, *_) in enumerate(batch)])
    rows, targets = (torch.cat([sequence[part] for sequence in batch]) for part in (1, 2))
    advantage = torch.cat([torch.full((len(rows),), advantage) for _, rows, _, advantage in batch])
    return tokens, (at, rows), targets, advantage


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    batches = list(micro_batches())
    tokens = sum(len(tokens) for tokens, *_ in sequences())
    drawn = sum(len(targets) for _, _, targets, _ in batches)
    best, begun = float("inf"), time.process_time()
    for _ in range(STEPS):
        started = time.perf_counter()
        for inputs, rows, targets, advantage in batches:
            logprobs = F.log_softmax(model(inputs, rows), -1).gather(-1, targets[:, None])[:, 0]
            ratio = (logprobs + 6.4).exp()
            loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).sum() / drawn
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        best = min(best, time.perf_counter() - started)
    threads, cpu = torch.get_num_threads(), (time.process_time() - begun) / STEPS
    print(f"torch {torch.__version__}, {threads} threads: {tokens} tokens, {tokens / best:.0f} tokens/s, {cpu:.2f} CPU s a step")


main()
