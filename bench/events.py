#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording events costs a training step: alone, --events, --invariants, TrainCheck 0.2.0.

    bench/events.py [--samples s01_sgd_mlp,...] [--repeats 3] [--traincheck FOLDER] [--json FILE]

Each sample runs with two lengths; the difference of their CPU seconds, divided by that of their
steps, is a step without the start-up. Medians of the repeats, all modes in turn in each. The
invariants are those that TrainCheck inferred from its own trace of the sample (test/golden).
FOLDER holds TrainCheck's commands; without it a virtual environment is made for them, which shares
this Python's torch.
"""
import argparse
import gzip
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent
GOLDEN = SOURCE / "test" / "golden"
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", SOURCE / "build"))
CAPTURE = BUILD / "tools" / "ttrace-capture"
STEPS = {"s01_sgd_mlp": 8, "s02_adam_sched": 8, "s03_tiny_lm": 6, "s05_amp_bf16": 6}  # by TT_MULT=1
PACKAGES = ["traincheck==0.2.0", "astor", "tqdm", "numba", "llvmlite", "pandas", "polars",
            "polars-runtime-32", "pyyaml", "orjson", "watchdog", "python-dateutil", "pytz",
            "tzdata", "six"]
MODES = {"plain": (25, 425), "events": (25, 225), "invariants": (25, 225), "traincheck": (1, 5)}
TARGETS = {"events": 10.0, "invariants": 1.5}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", default="s01_sgd_mlp,s02_adam_sched,s03_tiny_lm,s05_amp_bf16")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--traincheck", type=pathlib.Path, help="folder of TrainCheck's commands")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    return parser.parse_args()


def install_traincheck(folder):
    """Of its own, but with the torch that all modes use."""
    venv.create(folder, with_pip=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    shared = [entry for entry in sys.path if entry.endswith("-packages")]
    (site / "shared.pth").write_text("".join(entry + "\n" for entry in shared))
    subprocess.run([folder / "bin" / "pip", "install", "-q", "--no-deps", *PACKAGES], check=True)
    return folder / "bin"


def cpu_seconds(command, scratch, multiple):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], cwd=scratch, capture_output=True,
                          text=True, env={**os.environ, "TT_MULT": str(multiple),
                                          "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def command_of(mode, sample, scratch, commands):
    script = GOLDEN / "samples" / f"{sample}.py"
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    if mode == "events":
        return [CAPTURE, "-q", "-o", out, "--events", "--", sys.executable, script]
    if mode == "invariants":
        file = scratch / f"{sample}.inv.json"
        file.write_bytes(gzip.decompress((GOLDEN / f"{sample}.inv.jsonl.gz").read_bytes()))
        return [CAPTURE, "-q", "-o", out, "--invariants", file, "--", sys.executable, script]
    if mode == "traincheck":
        return [commands / "traincheck-collect", "-p", script, "--models-to-track", "model",
                "--output-dir", out]
    return [sys.executable, script]


def step_seconds(mode, sample, scratch, commands):
    short, long = MODES[mode]
    seconds = [cpu_seconds(command_of(mode, sample, scratch, commands), scratch, multiple)
               for multiple in (short, long)]
    return (seconds[1] - seconds[0]) / ((long - short) * STEPS[sample])


def table(samples, modes, medians):
    print("| sample | mode | a step | times plain | target |")
    print("|---|---|---:|---:|---:|")
    for sample in samples:
        for mode in modes:
            seconds = medians[sample][mode]
            times = seconds / medians[sample][modes[0]]
            target = f"{TARGETS[mode]:.1f}" if mode in TARGETS else ""
            print(f"| {sample} | {mode} | {seconds * 1e6:.0f} us | {times:.2f} | {target} |")


def main():
    options = arguments()
    samples, modes = options.samples.split(","), options.modes.split(",")
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-events-") as name:
        scratch = pathlib.Path(name)
        commands = options.traincheck
        if commands is None and "traincheck" in modes:
            commands = install_traincheck(scratch / "venv")
        found = {sample: {mode: [] for mode in modes} for sample in samples}
        for sample in samples:
            for _ in range(options.repeats):
                for mode in modes:
                    found[sample][mode].append(step_seconds(mode, sample, scratch, commands))
    medians = {sample: {mode: statistics.median(values) for mode, values in by_mode.items()}
               for sample, by_mode in found.items()}
    table(samples, modes, medians)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
