# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on traces: what a verdict costs in each mode, next to the metrics of the same tensors
alone. Every element is off by a spacing at most, so that nothing is skipped. Used by diff.py.
"""
from __future__ import annotations

import dataclasses
import pathlib
import subprocess

H5DIFF = "h5diff -q -p 1e-3"
PERTURBED = [str(seed) for seed in range(1, 9)]  # as many as an envelope of all statistics needs


@dataclasses.dataclass(frozen=True)
class TraceCase:
    name: str
    tensors: int
    rows: int
    columns: int


CASES = [TraceCase("2 x 64 MiB float32", 2, 4096, 4096), TraceCase("1 x 256 MiB float32", 1, 16384, 4096),
         TraceCase("2000 x 64 KiB float32", 2000, 128, 128)]


class Traces:
    """The traces of a case, written where they are not there."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path, case: TraceCase):
        self.folder = folder / f"{case.name.replace(' ', '_')}.traces"
        self.diff = build / "tools" / "ttrace-diff"
        self.limits = self.folder / "limits.json"
        if self.limits.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        size = [str(number) for number in (case.tensors, case.rows, case.columns)]
        for role in ("base", "candidate", "own", "high", *PERTURBED):
            subprocess.run([build / "bench" / "diff_trace", self.folder / role, role, *size], check=True)
        runs = [self.folder / role for role in ("base", *PERTURBED)]
        subprocess.run([build / "tools" / "ttrace-tolerance", *runs, "-o", self.limits, "-q"], check=True)

    def files(self) -> list[pathlib.Path]:
        """The base and the candidate as plain HDF5 files."""
        return [self.folder / role / "rank00000" / "it000000.h5" for role in ("base", "candidate")]

    def warm(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob("*/rank00000/*.h5"))

    def commands(self) -> dict[str, list]:
        base, candidate, own, high = (self.folder / role for role in ("base", "candidate", "own", "high"))
        return {
            "metrics alone": [self.diff, *self.files(), "--filter", "/data/*", "--rel", "1"],
            "end to end": [self.diff, base, candidate],
            "end to end, 1 thread": ["taskset", "-c", "0", self.diff, base, candidate],
            "envelope": [self.diff, base, candidate, "--limits", self.limits],
            "local": [self.diff, own, candidate, "--high", high],
            "local, 1 thread": ["taskset", "-c", "0", self.diff, own, candidate, "--high", high],
            H5DIFF: ["h5diff", "-q", "-p", "1e-3", *self.files()],
        }
