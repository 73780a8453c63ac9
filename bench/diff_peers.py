# SPDX-License-Identifier: Apache-2.0
"""The work of ttrace-diff with h5py and numpy or torch, as one would write it: diff_peers.py WHAT A B.

  read      reads all datasets, compares nothing
  allclose  numpy.allclose of each pair: one bit
  metrics   norms, largest errors and where, counts, and the histogram of spacings
  torch     torch.testing.assert_close of each pair: one bit and a message
"""
from __future__ import annotations

import sys

import h5py
import numpy as np


def values_of(dataset) -> np.ndarray:
    """As float32 where numpy has no such type; that is libhdf5's conversion."""
    return dataset[()]


def metrics(reference: np.ndarray, candidate: np.ndarray) -> dict:
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    error = c - r
    size = np.abs(error)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(r != 0, size / np.abs(r), 0)
        spacing = np.spacing(np.abs(reference.astype(np.float32))).astype(np.float64)
        bucket = np.where(error == 0, 0, np.maximum(np.floor(np.log2(size / spacing)) + 1, 1))
    finite = np.isfinite(r) & np.isfinite(c)
    return {
        "norms": [np.sqrt(np.sum(x * x)) for x in (error, r, c)],
        "products": [np.sum(error * r), np.sum(error)],
        "largest": size.max(), "where": size.argmax(), "relative": relative.max(),
        "unequal": np.count_nonzero(error), "first": (error != 0).argmax(),
        "nan": [np.count_nonzero(np.isnan(x)) for x in (r, c)], "finite": np.count_nonzero(finite),
        "spacings": np.bincount(bucket.astype(int).ravel(), minlength=34),
    }


def main(what: str, left: str, right: str) -> None:
    if what == "torch":
        import torch
    with h5py.File(left) as one, h5py.File(right) as other:
        for name in one:
            a, b = values_of(one[name]), values_of(other[name])
            if what == "allclose":
                np.allclose(a, b)
            elif what == "metrics":
                metrics(a, b)
            elif what == "torch":
                try:
                    torch.testing.assert_close(torch.from_numpy(b), torch.from_numpy(a))
                except AssertionError:
                    pass


if __name__ == "__main__":
    main(*sys.argv[1:])
