"""One GRPO step in Venus and in PyTorch, taking turns on one machine: medians, spread and ratio.

    cargo build --release -p venus-trainer --example step
    python crates/venus-trainer/reference/compare.py [--threads 1 2] [--rounds 5] [--bench target/release/examples/step]

Needs torch in this Python. `examples/step.rs` and `throughput.py` beside this file say what the step is.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bench", default="target/release/examples/step")
    options = parser.parse_args()
    theirs = [sys.executable, str(pathlib.Path(__file__).parent / "throughput.py")]
    print("tokens/s, median (least-most); ratio = PyTorch / Venus\n")
    print("| threads | Venus | PyTorch | ratio |\n|---:|---:|---:|---:|")
    for threads in options.threads:
        contenders, speeds = [[options.bench], theirs], [[], []]
        for turn in range(options.rounds):
            for which in [turn % 2, 1 - turn % 2]:
                speeds[which].append(speed(contenders[which], threads))
        ours, other = (statistics.median(of) for of in speeds)
        cells = [f"{statistics.median(of):.0f} ({min(of):.0f}-{max(of):.0f})" for of in speeds]
        print(f"| {threads} | {cells[0]} | {cells[1]} | {other / ours:.2f} |", flush=True)


def speed(command, threads):
    text = subprocess.run([*command, str(threads)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"([\d.]+) tokens/s", text)[1])


main()
