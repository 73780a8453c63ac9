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
DEVICE = BUILD / "test" / "fake_nccl" / "libfake_device_ops.so"
RUNS = 5

# Buffers of one case fit into the ring: what the calling thread pays is the copy into it.
# name, calls, bytes, iteration (-1: no marks), options of ttrace-capture (None: without it)
CASES = [
    ("NCCL alone", 1_000_000, 4096, None, None),
    ("preloaded, no capture", 1_000_000, 4096, None, "preload"),
    ("`--comm`, iteration left out", 1_000_000, 4096, 0, ["--comm", "full", "--iterations", "1"]),
    ("`--comm metadata`", 50_000, 4096, 0, ["--comm", "metadata"]),
    ("`--comm hash`, 4 KiB", 4_000, 4096, 0, ["--comm", "hash"]),
    ("`--comm full`, 4 KiB", 4_000, 4096, 0, ["--comm", "full"]),
    ("`--comm hash`, 1 MiB", 20, 1 << 20, 0, ["--comm", "hash"]),
    ("`--comm full`, 1 MiB", 20, 1 << 20, 0, ["--comm", "full"]),
]


def nanoseconds(calls, size, iteration, options):
    command = [str(CALLS), str(calls), str(size)] + ([] if iteration is None else [str(iteration)])
    # The buffers are the host's, and who is asked where they are answers at once.
    environment = {**os.environ, "TTRACE_DEVICE_OPS": str(DEVICE)}
    with tempfile.TemporaryDirectory() as folder:
        if options == "preload":
            environment["LD_PRELOAD"] = str(RECORDER)
        elif options is not None:
            command = [str(CAPTURE), "-q", "-o", folder + "/trace", *options, "--", *command]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return [float(number) for number in done.stdout.split()]


def main():
    print("| | us a call | of them CPU of the calling thread |\n|---|---|---|")
    for name, *case in CASES:
        runs = [nanoseconds(*case) for _ in range(RUNS)]
        wall, busy = (statistics.median(column) / 1000 for column in zip(*runs))
        print(f"| {name} | {wall:.3g} | {busy:.3g} |", flush=True)


if __name__ == "__main__":
    main()
