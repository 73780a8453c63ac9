# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on pairs of HDF5 files, and its peers, one after another, several times; medians.

Prints a table of seconds, one for traces and one of targets as Markdown. Files are in the page cache but where the
table says cold. With --gate G the exit code is 1 where a target is missed by more than the factor G.
"""
from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import time

import diff_traces
from diff_files import CASES, VARIANTS, Case, paths

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Run:
    wall: float
    cpu: float
    peak: float  # MiB


def run(command: list) -> Run:
    """Seconds and peak memory of a process; what it says does not matter."""
    null = os.open(os.devnull, os.O_RDWR)
    begin = time.perf_counter()
    pid = os.posix_spawnp(str(command[0]), [str(word) for word in command], os.environ,
                          file_actions=[(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)])
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begin
    os.close(null)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"diff.py: {command}: exit code {os.waitstatus_to_exitcode(status)}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def median(runs: list[Run]) -> Run:
    return Run(*(statistics.median(getattr(entry, name) for entry in runs) for name in ("wall", "cpu", "peak")))


def interleaved(commands: dict[str, list], rounds: int, slow: dict[str, list]) -> dict[str, Run]:
    """Slow ones run in the first round only."""
    every: dict[str, list[Run]] = {name: [] for name in (*commands, *slow)}
    for number in range(rounds):
        for name, command in {**commands, **(slow if number == 0 else {})}.items():
            every[name].append(run(command))
    return {name: median(runs) for name, runs in every.items()}


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.folder = pathlib.Path(options.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.build = build = pathlib.Path(options.build)
        self.diff = build / "tools" / "ttrace-diff"
        self.limits = build / "bench" / "diff_limits"
        self.rounds = options.rounds
        self.peers = not options.no_slow
        self.results: dict[tuple[str, str], dict[str, Run]] = {}

    def files(self, case: Case) -> dict[str, pathlib.Path]:
        files = paths(self.folder, case)
        if not all(path.exists() for path in files.values()):
            subprocess.run([sys.executable, HERE / "diff_write.py", self.folder, case.name], check=True)
        return files

    def measure(self, case: Case) -> None:
        files = self.files(case)
        for path in files.values():
            run(["cat", path])  # into the page cache
        for variant in VARIANTS:
            pair = [files["base"], files[variant]]
            commands = {
                "ttrace-diff": [self.diff, *pair],
                "ttrace-diff, 1 thread": ["taskset", "-c", "0", self.diff, *pair],
                "h5diff -q": ["h5diff", "-q", *pair],
                diff_traces.H5DIFF: ["h5diff", "-q", "-p", "1e-3", *pair],
                "h5diff -q -d 1e-3": ["h5diff", "-q", "-d", "1e-3", *pair],
            }
            if variant == "equal":  # else it stops at the first difference
                commands["cmp"] = ["cmp", *pair]
                commands["cat > /dev/null"] = ["cat", *pair]
            python = [sys.executable, HERE / "diff_peers.py"]
            slow = {f"h5py + {what}": [*python, name, *pair] for what, name in (
                ("numpy.allclose", "allclose"), ("numpy, all metrics", "metrics"), ("torch assert_close", "torch"))}
            entries = interleaved(commands, self.rounds, slow if self.peers and variant == "all" else {})
            self.results[case.name, variant] = entries
            print_times(case, variant, entries)

    def measure_traces(self, case: diff_traces.TraceCase) -> None:
        traces = diff_traces.Traces(self.folder, self.build, case)
        for path in traces.warm():
            run(["cat", path])
        memory = self.limit_of("memory", traces.files())
        self.results[case.name, "traces"] = entries = interleaved(traces.commands(), self.rounds, {})
        for mode, entry in entries.items():
            print(f"| {case.name} | {mode} | {entry.wall:.3f} | {entry.cpu:.3f} | {entry.peak:.0f} "
                  f"| {entry.wall / memory:.1f} |", flush=True)

    def limit(self, what: str, case: Case) -> float:
        files = self.files(case)
        return self.limit_of(what, [files["base"], files["all"]])

    def limit_of(self, what: str, pair: list[pathlib.Path]) -> float:
        done = subprocess.run([self.limits, what, *pair], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def cold(self, case: Case) -> tuple[float, float]:
        """Ours, and a loop that reads past the cache, of the same pair."""
        files = self.files(case)
        ours, loop = [], []
        for _ in range(self.rounds):
            for path in (files["base"], files["all"]):
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)
            loop.append(self.limit("direct", case))
            ours.append(run([self.diff, files["base"], files["all"]]).wall)
        return statistics.median(ours), statistics.median(loop)

    def ratio(self, case: str, variant: str, peer: str, what: str = "wall", ours: str = "ttrace-diff") -> float:
        entry = self.results[case, variant]
        return getattr(entry[peer], what) / getattr(entry[ours], what)

    def targets(self) -> list[tuple[str, float, float]]:
        """What, reached, wanted: more is better in all of them."""
        big, small, half, tiny = (CASES[at] for at in (0, 1, 2, 4))
        rows = []
        memory = self.limit("memory", big)
        for variant in ("one", "all"):
            wall = self.results[big.name, variant]["ttrace-diff"].wall
            rows.append((f"{big.name}, {variant}: speed as a share of reading memory", memory / wall, 0.55))
        p = diff_traces.H5DIFF
        rows += [
            (f"{big.name}, one: times faster than {p}", self.ratio(big.name, "one", p), 15),
            (f"{big.name}, all: times faster than {p}", self.ratio(big.name, "all", p), 30),
            (f"{big.name}, equal: times less CPU than cmp, 1 thread",
             self.ratio(big.name, "equal", "cmp", "cpu", "ttrace-diff, 1 thread"), 2),
            (f"{big.name}, equal: times less CPU than cat, 1 thread",
             self.ratio(big.name, "equal", "cat > /dev/null", "cpu", "ttrace-diff, 1 thread"), 1),
            (f"{half.name}, all: times faster than h5diff -q", self.ratio(half.name, "all", "h5diff -q"), 100),
            (f"{small.name}, one: times faster than {p}", self.ratio(small.name, "one", p), 2.5),
            (f"{small.name}, all: times faster than {p}", self.ratio(small.name, "all", p), 2.5),
            (f"{tiny.name}, equal: opening all datasets as a share of the CPU time",
             self.limit("open", tiny) / self.results[tiny.name, "equal"]["ttrace-diff, 1 thread"].cpu, 1 / 1.2),
        ]
        indexed = diff_traces.CASES[-1].name
        rows.append((f"{indexed}, traces: times faster than {p} of their segments",
                     self.ratio(indexed, "traces", p, ours="end to end"), 7))
        ours, loop = self.cold(big)
        rows.append((f"{big.name}, all, cold: speed as a share of reading past the cache", loop / ours, 0.85))
        for case in (big, small):
            peak = max(self.results[case.name, variant]["ttrace-diff"].peak for variant in VARIANTS)
            rows.append((f"{case.name}: 64 MiB + 1 KiB a tensor, as a multiple of the peak",
                         (64 + case.datasets / 1024) / peak, 1))
        version = interleaved({"ours": [self.diff, "--version"], "true": ["/bin/true"]}, 31, {})
        rows.append(("start: 3 ms as a multiple of the CPU time beyond that of /bin/true",
                     0.003 / max(version["ours"].cpu - version["true"].cpu, 1e-4), 1))
        return rows


def print_times(case: Case, variant: str, entries: dict[str, Run]) -> None:
    for name, entry in entries.items():
        print(f"| {case.name} | {variant} | {name} | {entry.wall:.3f} | {entry.cpu:.3f} | {entry.peak:.0f} "
              f"| {entry.wall / entries['ttrace-diff'].wall:.1f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="/tmp/ttrace-diff-bench")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--traces", action="store_true", help="the table of traces only")
    parser.add_argument("--no-slow", action="store_true", help="leave numpy and torch out")
    parser.add_argument("--gate", type=float, help="fail where less than this part of a target is reached")
    options = parser.parse_args()
    bench = Bench(options)
    if not options.traces:
        print("| files | differ | program | wall s | CPU s | peak MiB | wall, times ours |\n|---|---|---|---|---|---|---|")
        for case in CASES:
            bench.measure(case)
    print("\n| traces | mode | wall s | CPU s | peak MiB | wall, times reading |\n|---|---|---|---|---|---|")
    for traces in diff_traces.CASES:
        bench.measure_traces(traces)
    if options.traces:
        return 0
    targets = bench.targets()
    print("\n| target | reached | wanted | of the target |\n|---|---|---|---|")
    for what, reached, wanted in targets:
        print(f"| {what} | {reached:.2f} | {wanted:.2f} | {reached / wanted:.2f} |")
    missed = [what for what, reached, wanted in targets if options.gate and reached < options.gate * wanted]
    for what in missed:
        print(f"missed: {what}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
