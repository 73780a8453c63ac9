# SPDX-License-Identifier: Apache-2.0
"""The statistics of diff/statistics.hpp once more, in numpy, from their formulas and on whole
tensors at once; and tensors to try them on, stored in any type and cut over ranks in many ways.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import subprocess
from typing import Optional

import numpy as np

TOOL = pathlib.Path(os.environ.get("TTRACE_BUILD", "build"), "test", "statistics_of")
EPSILON = {"float64": 2.0 ** -52, "float32": 2.0 ** -23, "bfloat16": 2.0 ** -7,
           "float16": 2.0 ** -10, "float8_e4m3fn": 2.0 ** -3, "float8_e5m2": 2.0 ** -2}


# ---- types ----

def float8_values(exponent_bits: int, mantissa_bits: int, finite_only: bool) -> np.ndarray:
    """The value of each of the 256 codes."""
    values = []
    bias = 2 ** (exponent_bits - 1) - 1
    for code in range(256):
        sign = -1 if code & 128 else 1
        exponent = (code >> mantissa_bits) & (2 ** exponent_bits - 1)
        mantissa = code & (2 ** mantissa_bits - 1)
        last = exponent == 2 ** exponent_bits - 1
        if last and finite_only and mantissa == 2 ** mantissa_bits - 1:
            values.append(math.nan)
        elif last and not finite_only:
            values.append(math.nan if mantissa else sign * math.inf)
        elif exponent == 0:
            values.append(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
        else:
            values.append(sign * (1 + mantissa / 2 ** mantissa_bits) * 2.0 ** (exponent - bias))
    return np.array(values)


FLOAT8 = {"float8_e4m3fn": float8_values(4, 3, True), "float8_e5m2": float8_values(5, 2, False)}


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """The codes of the nearest values of the type."""
    if dtype in ("float64", "float32", "float16"):
        return np.asarray(values, dtype=dtype)
    if dtype == "bfloat16":
        bits = np.asarray(values, dtype=np.float32).view(np.uint32)
        nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), 0x7fc0, nearest).astype(np.uint16)
    table = FLOAT8[dtype]
    finite = np.flatnonzero(np.isfinite(table))
    order = finite[np.argsort(table[finite], kind="stable")]
    at = np.clip(np.searchsorted(table[order], values), 1, len(order) - 1)
    lower = values - table[order[at - 1]] < table[order[at]] - values
    return np.where(lower, order[at - 1], order[at]).astype(np.uint8)


def decode(codes: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype in FLOAT8:
        return FLOAT8[dtype][codes]
    return codes.astype(np.float64)


# ---- tensors over ranks ----

@dataclasses.dataclass
class Stored:
    """A tensor as it is stored, its exact values, and which rank holds which elements."""
    values: np.ndarray
    json: dict
    owners: list  # (name, index, mask), only where there are several


class Store:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.files = 0

    def _file(self, codes: np.ndarray) -> str:
        self.files += 1
        name = f"{self.files}.bin"
        (self.folder / name).write_bytes(np.ascontiguousarray(codes).tobytes())
        return name

    def whole(self, values: np.ndarray, dtype: str) -> Stored:
        return self.cut(values, dtype)

    def cut(self, values: np.ndarray, dtype: str, dim: int = 0, ranks: int = 1,
            zigzag: bool = False) -> Stored:
        """Rank r has chunk r of `dim`, or of 2 n chunks those numbered r and 2 n - 1 - r."""
        codes = encode(values, dtype)
        shards, owners = [], []
        for rank in range(ranks):
            index = np.arange(values.shape[dim] if values.ndim else 0)
            if ranks > 1:
                chunks = np.split(index, 2 * ranks if zigzag else ranks)
                index = chunks[rank]
                if zigzag:
                    index = np.concatenate([index, chunks[-1 - rank]])
            part = np.take(codes, index, axis=dim) if values.ndim else codes
            shards.append({"shape": list(part.shape), "file": self._file(part)})
            mask = np.zeros(values.shape, dtype=bool)
            mask[tuple(index if axis == dim else slice(None) for axis in range(values.ndim))] = True
            owners.append((f"rank {rank}", rank, mask))
        cuts = ["-"] * values.ndim
        if ranks > 1:
            cuts[dim] = "[tp:zigzag]" if zigzag else "[tp]"
        json_tensor = {"dtype": dtype, "dims": " ".join(cuts), "shards": shards,
                       "mesh": [["tp", ranks]] if ranks > 1 else []}
        return Stored(decode(codes, dtype), json_tensor, owners if ranks > 1 else [])

    def addends(self, parts: list, dtype: str) -> Stored:
        """Each rank has an addend of the same place."""
        codes = [encode(part, dtype) for part in parts]
        total = sum(decode(code, dtype) for code in codes)
        if dtype != "float64":
            total = total.astype(np.float32).astype(np.float64)
        json_tensor = {
            "dtype": dtype, "dims": " ".join(["-"] * parts[0].ndim) + " partial(tp)",
            "mesh": [["tp", len(parts)]],
            "shards": [{"shape": list(code.shape), "file": self._file(code)} for code in codes]}
        return Stored(total, json_tensor, [])


@dataclasses.dataclass
class Case:
    reference: Stored
    candidate: Stored
    noise: list
    epsilon: float
    scale: float = 1.0
    floor: float = 0.0
    gain: float = 1.0
    tensor: str = "ordinary"
    method: str = "local"
    extra: Optional[tuple] = None  # width, squares [row, group]

    def json(self) -> dict:
        job = {"shape": list(self.reference.values.shape), "reference": self.reference.json,
               "candidate": self.candidate.json, "noise": [noise.json for noise in self.noise],
               "epsilon": self.epsilon, "scale": self.scale, "floor": self.floor,
               "gain": self.gain, "class": self.tensor, "method": self.method}
        if self.extra:
            job["extra"] = {"width": self.extra[0], "squares": self.extra[1].ravel().tolist()}
        return job


def run(folder: pathlib.Path, cases: list) -> dict:
    job = {"cases": [case if isinstance(case, dict) else case.json() for case in cases]}
    done = subprocess.run([str(TOOL), str(folder)], input=json.dumps(job), text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


# ---- the formulas ----

def ratio(value, unit):
    value, unit = np.broadcast_arrays(np.asarray(value, float), np.asarray(unit, float))
    result = np.where(value > 0, 1e12, 0.0)
    positive = unit > 0
    result[positive] = np.minimum(value[positive] / unit[positive], 1e12)
    return result


def grouped(extent: int) -> np.ndarray:
    """The group of each index: at most 65,536 of them."""
    return np.arange(extent) // -(-extent // 65536) if extent else np.arange(0)


def group_name(name: str, groups: np.ndarray, group: int) -> str:
    members = np.flatnonzero(groups == group)
    if len(members) == 1:
        return f"{name} {members[0]}"
    return f"{name}s {members[0]}-{members[-1]}"


class Twin:
    """Everything about one case; `all` is {statistic: (value, limit, where)}."""

    def __init__(self, case: Case):
        self.case = case
        self.local = case.method == "local"
        self.fine = 1.5 if case.epsilon <= 2.0 ** -23 else 1.0
        x, candidate = case.reference.values, case.candidate.values * case.scale
        self.finite = np.isfinite(x) & np.isfinite(candidate)
        same = (x == candidate) | (np.isnan(x) & np.isnan(candidate))
        self.nonfinite_mismatch = bool(np.any(~self.finite & ~same))
        self.equal = bool(np.all(same))
        self.x = np.where(self.finite, x, 0.0)
        self.d = np.where(self.finite, candidate, 0.0) - self.x
        self.n = [np.where(self.finite & np.isfinite(noise.values), noise.values - self.x, 0.0)
                  for noise in case.noise]
        self.n2 = sum(n ** 2 for n in self.n) / len(self.n)
        if case.extra:
            per_column = np.repeat(case.extra[1], case.extra[0], axis=1)
            self.n2 = self.n2 + np.where(self.finite, per_column.reshape(x.shape), 0.0)
        self._level()
        self.all = {"norm": (float(ratio(self._norm(self.d), case.gain * self.sigma)),
                             (2.5 if self.local else 3) * self.fine, "")}
        if not self.equal and self.count:
            self._blocks()
            self._scales()
            self._column_mean()
            self._element()

    @staticmethod
    def _norm(values: np.ndarray) -> float:
        return float(np.sqrt(np.sum(values ** 2)))

    def _level(self):
        case = self.case
        self.count = int(self.finite.sum())
        self.nx = self._norm(self.x)
        few = 1.0 if self.count < 64 else 0.1
        self.sigma = max(math.sqrt(self.n2.sum() + case.floor ** 2), few * case.epsilon * self.nx)
        self.nu = self.sigma / self.nx if self.nx else 0.0
        missing = max(0.0, self.sigma ** 2 - self.n2.sum())
        self.n2 = np.where(self.finite, self.n2 + missing / max(1, self.count), 0.0)
        width = self.x.shape[-1] if self.x.ndim else 1
        self.rows = self.x.size // width if width else 0
        self.vector = self.rows <= 1 or width <= 1
        self.shards = case.candidate.owners
        if not self.shards and self.x.ndim and width >= 64:
            for i in range(8):
                mask = np.zeros(self.x.shape, dtype=bool)
                mask[..., width * i // 8:width * (i + 1) // 8] = True
                self.shards = self.shards + [(f"slice {i + 1} of 8", i, mask)]

    def _matrix(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(self.rows, -1)

    def _block_value(self, d2, n2, x2, size):
        expected = 0.5 * n2 + 0.25 * self.nu ** 2 * x2 + 0.25 * self.sigma ** 2 * size / self.count
        return ratio(np.sqrt(d2), self.case.gain * np.sqrt(expected))

    def _keep_largest(self, kind: str, values, limits, names):
        scores = np.array(values) / np.array(limits)
        at = int(np.argmax(scores))
        self.all[kind] = (float(values[at]), float(limits[at]), names(at))

    def _limit_of_block(self, kind: str, size: int) -> float:
        softmax = self.local and self.case.tensor == "softmax_backward"
        limit = {"shard": 4.5 if self.local else 5, "row": 8 if softmax else 5,
                 "column": 7 if softmax else 5}[kind]
        return (max(limit, 7) if size < 32 else limit) * self.fine

    def _blocks(self):
        sums = lambda values, mask: float(values[mask].sum())
        if self.shards:
            used = [shard for shard in self.shards if sums(self.finite, shard[2])]
            self._keep_largest(
                "shard",
                [float(self._block_value(sums(self.d ** 2, m), sums(self.n2, m),
                                         sums(self.x ** 2, m), sums(self.finite, m)))
                 for _, _, m in used],
                [self._limit_of_block("shard", sums(self.finite, m)) for _, _, m in used],
                lambda at: used[at][0])
        if self.vector:
            return
        for kind, axis in (("row", 1), ("column", 0)):
            groups = grouped(self._matrix(self.x).shape[1 - axis])
            add = lambda values: np.bincount(groups, weights=self._matrix(values).sum(axis=axis))
            size = add(self.finite.astype(float))
            used = np.flatnonzero(size)
            values = self._block_value(add(self.d ** 2), add(self.n2), add(self.x ** 2), size)
            limits = [self._limit_of_block(kind, count) for count in size[used]]
            self._keep_largest(kind, values[used], limits,
                               lambda at: group_name(kind, groups, used[at]))

    def _z(self, d, n) -> float:
        size = math.sqrt((d ** 2).sum() + (n ** 2).sum())
        return float((d.sum() - n.sum()) / size) if size else 0.0

    def _scales(self):
        x2 = (self.x ** 2).sum()
        self.factor, self.factor_error = 1.0, 0.0
        if not x2:
            return
        products = self.d * self.x, self.n[0] * self.x
        alpha = products[0].sum() / x2
        if not self.local:
            own = [float((n * self.x).sum() / x2) for n in self.n]
            self.factor, self.factor_error = 1 + alpha, math.sqrt(np.mean(np.square(own)))
            if len(own) >= 8:
                value = abs(alpha) / self.factor_error if abs(alpha) > 2.0 ** -22 else 0.0
                self.all["ensemble_scale"] = (value, 10 * self.fine, "")
            return
        least = max(0.4 * self.nu, 2.0 ** -22)

        def value(mask) -> float:
            squares = (self.x[mask] ** 2).sum()
            d, n = products[0][mask], products[1][mask]
            if not squares or abs((d.sum() - n.sum()) / squares) <= least:
                return 0.0
            return abs(self._z(d, n))

        everything = np.ones(self.x.shape, dtype=bool)
        self.factor = 1 + alpha - products[1].sum() / x2
        self.factor_error = math.sqrt(sum((p ** 2).sum() for p in products)) / x2
        self.all["scale"] = (value(everything), 7 * self.fine, "")
        used = [shard for shard in self.shards if self.finite[shard[2]].any()]
        if used:
            limits = [max(7, 0.16 * math.sqrt(self.finite[m].sum())) * self.fine
                      for _, _, m in used]
            self._keep_largest("shard_scale", [value(m) for _, _, m in used], limits,
                               lambda at: used[at][0])

    def _column_mean(self):
        if not self.local or self.vector or self.rows < 64:
            return
        groups = grouped(self._matrix(self.x).shape[1])
        add = lambda values: np.bincount(groups, weights=self._matrix(values).sum(axis=0))
        size = np.sqrt(add(self.d ** 2) + add(self.n[0] ** 2))
        difference = np.abs(add(self.d) - add(self.n[0]))
        values = np.divide(difference, size, out=np.zeros_like(size), where=size > 0)
        used = np.flatnonzero(add(self.finite.astype(float)))
        self._keep_largest("column_mean", values[used], np.full(len(used), 7 * self.fine),
                           lambda at: group_name("column", groups, used[at]))

    def _rms(self, axis: int) -> np.ndarray:
        matrix, finite = self._matrix(self.x), self._matrix(self.finite)
        groups = grouped(matrix.shape[1 - axis])
        squares = np.bincount(groups, weights=(matrix ** 2).sum(axis=axis))
        counts = np.bincount(groups, weights=finite.sum(axis=axis).astype(float))
        return np.sqrt(np.divide(squares, counts, out=np.zeros_like(squares),
                                 where=counts > 0))[groups]

    def _element(self):
        case = self.case
        t = self.nx / math.sqrt(self.count)
        if self.vector:
            product = np.abs(self.x)
        elif t:
            product = (self._rms(1)[:, None] * self._rms(0)[None, :] / t).reshape(self.x.shape)
        else:
            product = 0.0
        unit = (case.epsilon * (np.abs(self.x) + product + 0.1 * t) +
                self.sigma / math.sqrt(self.count))
        self.U = max(float(ratio(np.sqrt(self.n2), unit)[self.finite].max()), 0.5)
        values = ratio(np.abs(self.d), case.gain * self.U * unit) if np.any(unit) else (
            ratio(ratio(np.abs(self.d), unit), case.gain * self.U))
        softmax = self.local and case.tensor == "softmax_backward"
        limit = 16 if softmax else 10 if self.local and self.vector else 7 if self.local else 6
        at = int(np.argmax(values))
        self.all["element"] = (float(values.flat[at]), limit * self.fine, f"element {at}")
        if case.tensor == "parameter" and not self.vector:
            zero = ~self._matrix(self.x).any(axis=1)
            zero &= ~np.any([self._matrix(n).any(axis=1) for n in self.n], axis=0)
            norms = np.where(zero, np.sqrt((self._matrix(self.d) ** 2).sum(axis=1)), 0.0)
            if norms.any():
                self.all["zero_row"] = (float(norms.max()), 0.0, f"row {int(np.argmax(norms))}")

    def score(self, kind: str) -> float:
        value, limit, _ = self.all[kind]
        return value / limit if limit else (1e12 if value else 0.0)

    def resolution(self) -> dict:
        case = self.case
        relative = self.nx or 1.0
        value, limit, _ = self.all["norm"]
        result = {"norm": math.sqrt(max(0.0, limit ** 2 - value ** 2)) * case.gain * self.sigma /
                  relative}
        if self.local and self.count <= 3 * (7 * self.fine) ** 2:
            result["factor"] = None  # z = sqrt(N / 3) at most
        elif self.local:
            result["factor"] = max(7 * self.fine * self.factor_error, 0.4 * self.nu, 2.0 ** -22)
        elif len(self.n) >= 8:
            result["factor"] = max(10 * self.fine * self.factor_error, 2.0 ** -22)
        if self.shards:
            result["shard"] = max(
                (self._limit_of_block("shard", self.finite[m].sum()) * case.gain *
                 math.sqrt(0.5 * self.n2[m].sum() + 0.25 * self.nu ** 2 * (self.x[m] ** 2).sum() +
                           0.25 * self.sigma ** 2 * self.finite[m].sum() / self.count) /
                 self._norm(self.x[m]) for _, _, m in self.shards if self.x[m].any()),
                default=None)
        t = self.nx / math.sqrt(self.count)
        unit = 2.1 * case.epsilon * t + self.sigma / math.sqrt(self.count)
        result["element"] = self.all["element"][1] * case.gain * self.U * unit / (t or 1.0)
        return result
