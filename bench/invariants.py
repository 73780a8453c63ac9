#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What inferring and checking invariants costs, beside TrainCheck 0.2.0, on the same traces.

bench/invariants.sh [FOLDER] [--trace NAME] [--times 1,4,16] [--slow-times 1,4,16]

Traces are golden ones, repeated as if the program had gone on; 16 times s02_adam_sched are 20 MB,
for which TrainCheck takes minutes. It is installed into a virtual environment in FOLDER that sees
this Python's torch. Both tools get the invariants that each wrote itself; those of
--traincheck-compat are compared with TrainCheck's, as are the verdicts. CPU seconds, of the best of
three runs for ours. What TrainCheck took is kept in FOLDER, so that an interrupted run goes on.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import sysconfig
import time
from typing import Any, Dict, List, Optional, Tuple

from invariants_traces import (SOURCE, invariants_in, repeated, signatures, size_of, verdicts_in)

VERSION = "0.2.0"
FASTER, EXPONENT, MEMORY = 100, 1.2, 4  # the targets
MODES = {"TrainCheck": None, "compat": ["--traincheck-compat"], "default": []}


class Cost:
    """CPU seconds and peak memory of a command and of what it waited for."""

    def __init__(self, cpu: float, peak: int):
        self.cpu, self.peak = cpu, peak

    @staticmethod
    def of(words: List[Any], log: pathlib.Path, good: Tuple[int, ...] = (0,),
           limit: float = 7200) -> "Cost":
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        with log.open("w") as output:
            process = subprocess.Popen([str(word) for word in words], stdout=output, stderr=output,
                                       env=environment, cwd=log.parent)
            deadline = time.monotonic() + limit
            while True:
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    break
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in good:
            raise SystemExit(f"{' '.join(map(str, words))}: exit {process.returncode}\n"
                             f"{log.read_text()[-2000:]}")
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Bench:
    def __init__(self, folder: pathlib.Path, tools: pathlib.Path):
        self.folder, self.tools = folder, tools
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log.txt"
        self.signatures = signatures(folder)
        self.kept = folder / "traincheck.json"
        self.slow: Dict[str, List[float]] = (json.loads(self.kept.read_text())
                                             if self.kept.exists() else {})

    def install(self) -> None:
        """TrainCheck in an environment of its own, on top of the packages of this Python."""
        self.bin = self.folder / "venv" / "bin"
        if (self.bin / "traincheck-check").exists():
            return
        if importlib.util.find_spec("torch") is None:
            raise SystemExit(f"{sys.executable} has no torch; run it with PYTHON=.venv/bin/python3")
        print(f"Installing traincheck {VERSION}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        site = subprocess.run([self.bin / "python", "-c",
                               "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              check=True, capture_output=True, text=True).stdout.strip()
        pathlib.Path(site, "torch_of_this_python.pth").write_text(
            sysconfig.get_path("purelib") + "\n")
        subprocess.run([self.bin / "pip", "install", "-q", f"traincheck=={VERSION}"], check=True)

    def measure(self, mode: str, trace: pathlib.Path) -> Tuple[Cost, Cost]:
        """Of inferring and checking; the files stay beside the trace."""
        invariants = self.folder / f"{trace.name}.{mode}.json"
        results = self.folder / f"{trace.name}.{mode}.results"
        if mode == "TrainCheck":
            return (self.kept_or_run(f"infer {trace.name}",
                                     [self.bin / "traincheck-infer", "-f", trace, "-o",
                                      invariants]),
                    self.kept_or_run(f"check {trace.name}",
                                     [self.bin / "traincheck-check", "-f", trace, "-i", invariants,
                                      "-o", results]))
        options = ["--signatures", self.signatures, *(MODES[mode] or [])]
        return (self.best([self.tools / "ttrace-infer", trace, "-o", invariants, *options]),
                self.best([self.tools / "ttrace-check", trace, "-i", invariants, "-o", results,
                           *options], good=(0, 1)))

    def kept_or_run(self, name: str, words: List[Any]) -> Cost:
        if name not in self.slow:
            print(f"TrainCheck: {name}", file=sys.stderr)
            cost = Cost.of(words, self.log)
            self.slow[name] = [cost.cpu, cost.peak]
            self.kept.write_text(json.dumps(self.slow))
        cpu, peak = self.slow[name]
        return Cost(cpu, int(peak))

    def best(self, words: List[Any], good: Tuple[int, ...] = (0,)) -> Cost:
        costs = [Cost.of(words, self.log, good) for _ in range(3)]
        return min(costs, key=lambda cost: cost.cpu)

    # ---- the same results? ----

    def differing_invariants(self, trace: pathlib.Path) -> Tuple[int, int]:
        theirs, ours = (invariants_in(self.folder / f"{trace.name}.{mode}.json")
                        for mode in ("TrainCheck", "compat"))
        return len(set(theirs) ^ set(ours)), len(theirs)

    def differing_verdicts(self, trace: pathlib.Path) -> Tuple[int, int]:
        """Of the invariants that both have."""
        theirs, ours = (verdicts_in(self.folder / f"{trace.name}.{mode}.results")
                        for mode in ("TrainCheck", "compat"))
        both = set(theirs) & set(ours)
        return sum(theirs[key] != ours[key] for key in both), len(both)


def exponent(costs: Dict[int, Cost]) -> Optional[float]:
    if len(costs) < 2:
        return None
    low, high = min(costs), max(costs)
    return math.log(costs[high].cpu / costs[low].cpu) / math.log(high / low)


def row(*cells: Any) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def judged(name: str, value: float, target: float, reached: bool) -> None:
    row(name, f"{value:.2f}" if value < 10 else f"{value:.0f}", target,
        "yes" if reached else "**no**")


def report(sizes: Dict[int, int], costs: Dict[str, Dict[int, Tuple[Cost, Cost]]]) -> None:
    row("trace", "tool", "infer, CPU s", "x faster", "memory x trace", "check, CPU s", "x faster",
        "memory x trace")
    row(*["---"] * 8)
    for times, size in sizes.items():
        for mode, measured in costs.items():
            if times not in measured:
                continue
            cells: List[Any] = [f"{times}x, {size / 1e6:.1f} MB", mode]
            for what in (0, 1):
                cost, slow = measured[times][what], costs["TrainCheck"].get(times)
                cells += [f"{cost.cpu:.3f}", f"{slow[what].cpu / cost.cpu:.0f}" if slow else "",
                          f"{cost.peak / size:.1f}"]
            row(*cells)
    print()
    row("target", "measured", "wanted", "reached")
    row(*["---"] * 4)
    largest = max(sizes)
    for mode in (mode for mode in costs if mode != "TrainCheck"):
        for what, name in enumerate(("infer", "check")):
            series = {times: pair[what] for times, pair in costs[mode].items()}
            slow = costs["TrainCheck"].get(largest)
            if slow is not None:
                faster = slow[what].cpu / series[largest].cpu
                judged(f"{mode}, {name}: times faster at {largest}x", faster, FASTER,
                       faster >= FASTER)
            power = exponent(series)
            if power is not None:
                judged(f"{mode}, {name}: exponent from {min(series)}x to {max(series)}x", power,
                       EXPONENT, power <= EXPONENT)
            memory = series[largest].peak / sizes[largest]
            judged(f"{mode}, {name}: memory, times the trace", memory, MEMORY, memory <= MEMORY)
    for what, name in enumerate(("infer", "check")):
        power = exponent({times: pair[what] for times, pair in costs["TrainCheck"].items()})
        if power is not None:
            row(f"TrainCheck, {name}: exponent", f"{power:.2f}", "", "")


def numbers(text: str) -> List[int]:
    return sorted({int(word) for word in text.split(",") if word})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=pathlib.Path("/tmp/ttrace-invariants-bench"))
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--trace", default="s02_adam_sched", help="a golden one")
    parser.add_argument("--times", type=numbers, default=[1, 4, 16], metavar="N,...")
    parser.add_argument("--slow-times", type=numbers, metavar="N,...",
                        help="for TrainCheck (as --times; nothing: none)")
    parser.add_argument("--modes", default="compat,default", help="of ours")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    slow_times = options.times if options.slow_times is None else options.slow_times
    bench = Bench(options.folder.resolve(), options.build.resolve() / "tools")
    if slow_times:
        bench.install()
    sizes: Dict[int, int] = {}
    costs: Dict[str, Dict[int, Tuple[Cost, Cost]]] = {mode: {} for mode in MODES}
    for times in options.times:
        trace = repeated(options.trace, times, bench.folder)
        sizes[times] = size_of(trace)
        for mode in MODES:
            if times in slow_times if mode == "TrainCheck" else mode in options.modes.split(","):
                costs[mode][times] = bench.measure(mode, trace)
    costs = {mode: measured for mode, measured in costs.items()
             if measured or mode == "TrainCheck"}
    report(sizes, costs)
    for times in slow_times if "compat" in costs else []:
        trace = repeated(options.trace, times, bench.folder)
        for name, (differing, all_of) in (("invariants", bench.differing_invariants(trace)),
                                          ("verdicts", bench.differing_verdicts(trace))):
            print(f"\n{times}x: {differing} of {all_of} {name} differ from TrainCheck's", end="")
    print()


if __name__ == "__main__":
    main()
