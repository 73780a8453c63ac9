# SPDX-License-Identifier: Apache-2.0
"""What the NCCL recorder costs a call, on an NCCL that does nothing.

usage: nccl.py [BUILD]     the table of docs/performance.md, median of 5 runs
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
CALLS = BUILD / "bench" / "nccl" / "nccl_calls"
RECORDER = BUILD / "capture" / "nccl" / "libttrace_nccl.so"
CAPTURE = BUILD / "tools" / "ttrace-capture"
RUNS = 5

# name, calls, bytes, iteration (-1: no marks), options of ttrace-capture (None: without it)
CASES = [
    ("NCCL alone", 1_000_000, 4096, None, None),
    ("preloaded, no capture", 1_000_000, 4096, None, "preload"),
    ("`--comm`, iteration left out", 1_000_000, 4096, 0, ["--comm", "full", "--iterations", "1"]),
    ("`--comm metadata`", 50_000, 4096, 0, ["--comm", "metadata"]),
    ("`--comm hash`, 4 KiB", 20_000, 4096, 0, ["--comm", "hash"]),
    ("`--comm full`, 4 KiB", 20_000, 4096, 0, ["--comm", "full"]),
    ("`--comm hash`, 1 MiB", 200, 1 << 20, 0, ["--comm", "hash"]),
    ("`--comm full`, 1 MiB", 200, 1 << 20, 0, ["--comm", "full"]),
]


def nanoseconds(calls, size, iteration, options):
    command = [str(CALLS), str(calls), str(size)] + ([] if iteration is None else [str(iteration)])
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        if options == "preload":
            environment["LD_PRELOAD"] = str(RECORDER)
        elif options is not None:
            command = [str(CAPTURE), "-q", "-o", folder + "/trace", *options, "--", *command]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return float(done.stdout)


def main():
    print("| | us a call | more than alone |\n|---|---|---|")
    alone = None
    for name, *case in CASES:
        time = statistics.median(nanoseconds(*case) for _ in range(RUNS)) / 1000
        alone = time if alone is None else alone
        print(f"| {name} | {time:.3f} | {time - alone:.3f} |", flush=True)


if __name__ == "__main__":
    main()
