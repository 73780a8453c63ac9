#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of torch.distributed costs the program's thread: alone, captured, and with --comm.

    bench/collectives.sh [--repeats 3] [--json FILE]

Two ranks, gloo, CPU. Microseconds of CPU time of the calling thread, which is what capture adds to:
the backend's own threads and the waiting for other ranks do not count. Best of the repeats, all
modes in turn in each. "apart" is a run with --comm full in an iteration that is not captured.
Prints the table; under three minutes on two idle cores.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", HERE.parents[1] / "build"))
CAPTURE = BUILD / "tools" / "ttrace-capture"
MODES = {"alone": None, "captured": "", "apart": "full", "metadata": "metadata", "hash": "hash",
         "full": "full"}
SIZES = {"all_reduce 4 B": 1, "all_reduce 64 KiB": 1 << 14, "all_reduce 4 MiB": 1 << 20}
CALLS = {1: 400, 1 << 14: 200, 1 << 20: 20}


def measured(call, count):
    for _ in range(5):
        call()
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count * 1e6


def program():
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(1, 2)).sum().backward()
    found = {}
    for name, size in SIZES.items():
        buffer = torch.ones(size)
        found[name] = measured(lambda: dist.all_reduce(buffer.fill_(1)), CALLS[size])
    small = torch.ones(1)
    found["functional 4 B"] = measured(
        lambda: functional.wait_tensor(functional.all_reduce(small, "sum", dist.group.WORLD)), 200)
    other = 1 - dist.get_rank()
    found["send and receive 4 B"] = measured(
        lambda: (dist.send(small, other) if other else dist.recv(small, other)), 200)
    optimizer.step()
    model(torch.ones(1, 2))  # the iteration that "apart" captures
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def run(mode, scratch):
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             HERE, "--program"]
    if mode != "alone":
        comm = ["--comm", MODES[mode]] if MODES[mode] else []
        ranks = [CAPTURE, "-q", "-o", scratch / "out", *comm, "--iterations",
                 "1" if mode == "apart" else "0", "--", *ranks]
    done = subprocess.run(
        [str(word) for word in ranks], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    shutil.rmtree(scratch / "out", ignore_errors=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        return program()
    best = {}
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-") as scratch:
        for _ in range(arguments.repeats):
            for mode in MODES:
                for name, value in run(mode, pathlib.Path(scratch)).items():
                    row = best.setdefault(name, {})
                    row[mode] = min(value, row.get(mode, value))
    print(f"| call, us | {' | '.join(MODES)} |\n|---{'|---' * len(MODES)}|")
    for name, row in best.items():
        print(f"| {name} | {' | '.join(f'{row[mode]:.0f}' for mode in MODES)} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2) + "\n")


if __name__ == "__main__":
    main()
