# SPDX-License-Identifier: Apache-2.0
"""Pairs of HDF5 files for diff.py: a base, an equal copy, one element of each dataset off, all off."""
from __future__ import annotations

import dataclasses
import pathlib

import h5py
import numpy as np


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
    Case("4 x 8 MiB float8_e5m2", (("float8_e5m2", 4, 8 * MIB),)),
    Case("mixed", (("float32", 3, 16 * MIB), ("bfloat16", 3, 4 * MIB), ("float8_e5m2", 3, 2 * MIB),
                   ("int64", 2, 8 * MIB), ("float32", 300, 64 * 1024), ("bfloat16", 300, 4096))),
]
VARIANTS = ("equal", "one", "all")


def float_type(size: int, exponent: int, mantissa: int, bias: int) -> h5py.h5t.TypeID:
    made = h5py.h5t.IEEE_F32LE.copy()
    made.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
    made.set_precision(8 * size)
    made.set_size(size)
    made.set_ebias(bias)
    return made


# The type in the file, and that of numpy with the same bits.
TYPES = {
    "float32": (h5py.h5t.IEEE_F32LE, np.uint32),
    "bfloat16": (float_type(2, 8, 7, 127), np.uint16),
    "float8_e5m2": (float_type(1, 5, 2, 15), np.uint8),
    "int64": (h5py.h5t.STD_I64LE, np.uint64),
}


def bits_of(kind: str, size: int, random: np.random.Generator) -> np.ndarray:
    if kind == "int64":
        return random.integers(0, 50_000, size // 8).astype(np.uint64)
    values = random.standard_normal(size // TYPES[kind][1]().itemsize, dtype=np.float32)
    if kind == "float32":
        return values.view(np.uint32)
    if kind == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)


def changed(bits: np.ndarray, kind: str, variant: str) -> np.ndarray:
    """A neighbour of each value, or of one: the last bits but one decide."""
    if variant == "equal":
        return bits
    step = {"float32": 16, "bfloat16": 1, "float8_e5m2": 1, "int64": 1}[kind]
    flip = np.asarray(step, bits.dtype)
    if variant == "all":
        return bits ^ flip
    copy = bits.copy()
    copy[copy.size // 3] ^= np.asarray(step * (256 if kind == "float32" else 1), bits.dtype)
    return copy


def write(path: pathlib.Path, case: Case, variant: str) -> None:
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        number = 0
        for kind, count, size in case.parts:
            file_type, _ = TYPES[kind]
            for _ in range(count):
                bits = changed(bits_of(kind, size, random), kind, variant)
                dataset = h5py.h5d.create(file.id, f"t{number:05}".encode(), file_type,
                                          h5py.h5s.create_simple(bits.shape))
                dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=file_type)
                number += 1


def prepare(folder: pathlib.Path, case: Case) -> dict[str, pathlib.Path]:
    """The base and the variants by name; written once."""
    made = {}
    for variant in ("base", *VARIANTS):
        path = folder / f"{case.name.replace(' ', '_')}.{variant}.h5"
        if not path.exists():
            part = path.with_suffix(".part")
            write(part, case, "equal" if variant == "base" else variant)
            part.rename(path)
        made[variant] = path
    return made
