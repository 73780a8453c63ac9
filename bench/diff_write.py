# SPDX-License-Identifier: Apache-2.0
"""Writes the files of diff_files.py that are not there: diff_write.py FOLDER CASE."""
from __future__ import annotations

import pathlib
import shutil
import sys

import h5py
import numpy as np

from diff_files import CASES, Case, paths


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
    if variant == "base":
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


def main(folder: str, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    made = paths(pathlib.Path(folder), case)
    for variant, path in made.items():
        if path.exists():
            continue
        part = path.with_suffix(".part")
        if variant == "equal":  # equal byte by byte: HDF5 writes the time into a file
            shutil.copyfile(made["base"], part)
        else:
            write(part, case, variant)
        part.rename(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
