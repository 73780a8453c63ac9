# SPDX-License-Identifier: Apache-2.0
"""Pairs of HDF5 files for diff.py: a base, an equal copy, one element of each dataset off, all off.

No numpy here: a process inherits the peak memory of the one that starts it. diff_write.py writes them.
"""
from __future__ import annotations

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    parts: tuple[tuple[str, int, int], ...]  # type, datasets, bytes of each

    @property
    def datasets(self) -> int:
        return sum(count for _, count, _ in self.parts)


MIB = 2**20
CASES = [
    Case("8 x 64 MiB float32", (("float32", 8, 64 * MIB),)),
    Case("2000 x 64 KiB float32", (("float32", 2000, 64 * 1024),)),
    Case("4 x 8 MiB bfloat16", (("bfloat16", 4, 8 * MIB),)),
    Case("4 x 2 MiB float8_e5m2", (("float8_e5m2", 4, 2 * MIB),)),
    Case("2000 x 256 B float32", (("float32", 2000, 256),)),
    Case("mixed", (("float32", 3, 16 * MIB), ("bfloat16", 3, 4 * MIB), ("float8_e5m2", 3, MIB),
                   ("int64", 2, 8 * MIB), ("float32", 300, 64 * 1024), ("bfloat16", 300, 4096))),
]
VARIANTS = ("equal", "one", "all")


def paths(folder: pathlib.Path, case: Case) -> dict[str, pathlib.Path]:
    """The base and the variants by name."""
    return {variant: folder / f"{case.name.replace(' ', '_')}.{variant}.h5" for variant in ("base", *VARIANTS)}
