"""Venus, llama.cpp and PyTorch on one model, taking turns on one machine: medians, spread and ratios.

    cargo build --release -p venus-lm --example bench
    python crates/venus-lm/reference/compare.py DIR|tiny [LLAMA] [--threads 1 2] [--rounds 3] [--bench target/release/examples/bench]

DIR is SmolLM2-135M-Instruct as `examples/convert.rs` made it, LLAMA the folder of llama.cpp's libraries: `llama_bench.py`
says where they come from. Without it, as with `tiny`, PyTorch alone is compared. Needs torch, transformers, gguf,
safetensors and numpy in this Python. The two GGUF files go to a temporary directory.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("llama", nargs="?")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench", default="target/release/examples/bench")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {kind: pathlib.Path(folder, f"{kind}.gguf") for kind in ["f32", "f16"] if options.llama}
        for kind, file in files.items():
            python("llama_bench.py", "gguf", options.model, file, kind)
        for threads in options.threads:
            contenders = {"Venus": lambda: output(options.bench, options.model, threads)}
            for kind, file in files.items():
                contenders[f"llama.cpp {kind}"] = lambda file=file: python("llama_bench.py", "run", file, options.llama, threads)
            contenders["PyTorch"] = lambda: python("torch_bench.py", options.model, threads)
            compare(contenders, threads, options.rounds)


def python(script, *arguments):
    return output(sys.executable, HERE / script, *arguments)


def output(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout


def compare(contenders, threads, rounds):
    """Another contender begins each round."""
    speeds, names = {}, list(contenders)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for line in contenders[name]().splitlines():
                measure, colon, rest = line.partition(": ")
                if colon:
                    speeds.setdefault(measure, {}).setdefault(name, []).append(float(rest.split()[0]))
    clock = "processor time" if threads == 1 else "wall clock"
    print(f"\n{threads} thread(s), tokens/s by {clock}: median (least-most) of {rounds} rounds; ratio = theirs / Venus\n")
    print("| |", " | ".join(name if name == names[0] else f"{name} | ratio" for name in names), "|")
    print("|---|", "---:|" * (2 * len(names) - 1), sep="")
    for measure, of in speeds.items():
        ours, cells = statistics.median(of[names[0]]), []
        for name in names:
            if name not in of:
                cells += ["-", "-"]
                continue
            median = statistics.median(of[name])
            cells.append(f"{median:.1f} ({min(of[name]):.1f}-{max(of[name]):.1f})")
            if name != names[0]:
                cells.append(f"{median / ours:.2f}")
        print("|", measure, "|", " | ".join(cells), "|", flush=True)


main()
