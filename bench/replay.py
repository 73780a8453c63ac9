#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a captured and a replayed step cost, as multiples of a plain one in the same run.

The time of a step is that of a run of many steps less that of a run of few, over the difference;
medians of interleaved rounds.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402

TRAIN = SOURCE / "samples/megatron/pretrain_gpt.py"
FEW, MANY = 2, 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=pathlib.Path, default=SOURCE / "build/tools")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="--layers 8 --hidden 256 --heads 8 --seq 128")
    args = parser.parse_args()
    server = forkserver.Server()

    def run(words) -> float:
        start = time.monotonic()
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return time.monotonic() - start

    def command(steps):
        return [*server.command(), TRAIN, *args.model.split(), "--iters", steps]

    def traced(folder, steps, *options):
        return [args.tools / "ttrace-capture", "-q", "-o", folder, "--overwrite", "--iterations",
                f"0-{steps - 1}", *options, "--", *command(steps)]

    with tempfile.TemporaryDirectory(prefix="ttrace-bench-") as scratch:
        folder = pathlib.Path(scratch)
        packs = {}
        for steps in (FEW, MANY):
            run(traced(folder / "ref", steps))
            packs[steps] = folder / f"{steps}.pack"
            run([args.tools / "ttrace-merge", "-q", folder / "ref", "--pack", "--like",
                 folder / "ref", "-o", packs[steps]])
        kinds = {"plain": lambda steps: command(steps),
                 "captured": lambda steps: traced(folder / "t", steps),
                 "replayed": lambda steps: traced(folder / "t", steps, "--replay", packs[steps])}
        seconds = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind, words in kinds.items():
                times = {steps: run(words(steps)) for steps in (FEW, MANY)}
                seconds[kind].append((times[MANY] - times[FEW]) / (MANY - FEW))
    plain = statistics.median(seconds["plain"])
    print("| step | seconds | times plain |\n|---|---|---|")
    for kind, values in seconds.items():
        median = statistics.median(values)
        print(f"| {kind} | {median:.2f} | {median / plain:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
