#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does ttrace-check see without a reference? Every healthy layout of bench/layouts.py, where
it must be silent, and every run with a bug in the samples' expected.json, of which it can see some.

Prints two tables: healthy runs by what was compared, and bugs by the checks that saw them. Two
iterations are captured of each run. Traces are removed as soon as they are checked.
"""
from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple

import layouts
from layouts import PROGRAMS, SOURCE


class Run(NamedTuple):
    sample: str
    name: str
    ranks: int
    arguments: str


def healthy() -> List[Run]:
    return [Run(row.sample, row.name, row.ranks, f"{row.model} {row.layout} --iters 2")
            for row in layouts.ROWS if not row.undeclared]


def broken() -> List[Run]:
    runs = []
    for sample in PROGRAMS:
        document = json.loads((SOURCE / "samples" / sample / "expected.json").read_text())
        for case in document["runs"]:
            words = [*case["model"], *case["layout"], "--bug", case["bug"], "--iters", "2"]
            runs.append(Run(sample, f"{sample} {case['name']}", case["ranks"], " ".join(words)))
    return runs


def check(tools: pathlib.Path, folder: pathlib.Path, run: Run,
          options: List[str]) -> Dict[str, Any]:
    trace = folder / "trace"
    fork = [] if run.ranks == 1 else [layouts.FORKED, run.ranks]
    layouts.call([tools / "ttrace-capture", "-q", "--overwrite", "-o", trace, "--iterations", "0-1",
                  *options, "--", *layouts.SERVER.command(), *fork, PROGRAMS[run.sample],
                  *run.arguments.split()])
    began = time.monotonic()
    report = json.loads(layouts.call([tools / "ttrace-check", trace, "--json", "-"], (0, 1)))
    report["seconds"] = time.monotonic() - began
    shutil.rmtree(trace)
    return report


def violated(report: Dict[str, Any]) -> List[str]:
    return [entry["name"] for entry in report["checks"] if entry["verdict"] == "violated"]


def run_all(runs: List[Run], tools: pathlib.Path, folder: pathlib.Path,
            options: List[str]) -> Dict[str, Any]:
    reports = {}
    for number, run in enumerate(runs, 1):
        print(f"[{number}/{len(runs)}] {run.name}", file=sys.stderr, flush=True)
        try:
            reports[run.name] = check(tools, folder, run, options)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"  {error}", file=sys.stderr)
    return reports


def print_healthy(reports: Dict[str, Any]) -> None:
    checked: Dict[str, int] = collections.Counter()
    for report in reports.values():
        checked.update(entry["name"] for entry in report["checks"]
                       if entry["verdict"] != "not checked")
    silent = sum(not violated(report) for report in reports.values())
    print(f"{silent} of {len(reports)} healthy runs are silent\n\n| check | compared something in |")
    print("|---|---|")
    for name, count in checked.items():
        print(f"| {name} | {count} |")
    for name, report in reports.items():
        if violated(report):
            print(f"not as it should be: {name}: {', '.join(violated(report))}")


def print_broken(reports: Dict[str, Any]) -> None:
    seen = {name: violated(report) for name, report in reports.items() if violated(report)}
    print(f"\n{len(seen)} of {len(reports)} runs with a bug are seen\n\n| run | by |\n|---|---|")
    for name, checks in seen.items():
        print(f"| {name} | {', '.join(checks)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Example: bench/check.py --only torch")
    parser.add_argument("--tools", type=pathlib.Path, default=SOURCE / "build/tools")
    parser.add_argument("--only", default="", help="runs whose names contain this")
    parser.add_argument("--comm", action="store_true", help="with the buffers of collectives")
    args = parser.parse_args()
    if not (args.tools / "ttrace-check").exists():
        parser.error(f"no ttrace-check in {args.tools}: run ./test/run.sh --build-only, or give --tools")
    tools = args.tools.resolve()
    with tempfile.TemporaryDirectory(prefix="ttrace-check-") as folder:
        good, bad = (run_all([run for run in runs if args.only in run.name], tools,
                             pathlib.Path(folder), ["--comm", "full"] if args.comm else [])
                     for runs in (healthy(), broken()))
    if not good and not bad:
        parser.error(f"--only {args.only}: no run has that in its name")
    print_healthy(good)
    print_broken(bad)
    seconds = sorted(report["seconds"] for report in {**good, **bad}.values())
    print(f"\nseconds a check: median {seconds[len(seconds) // 2]:.2f}, most {seconds[-1]:.2f}")
    return 1 if any(violated(report) for report in good.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
