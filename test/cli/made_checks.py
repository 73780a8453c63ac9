# SPDX-License-Identifier: Apache-2.0
"""Made-up traces for tests of ttrace-check, and what it says of them."""
from __future__ import annotations

import json
import math
import subprocess

import numpy as np

from made_traces import BUILD, DiffTest, record

CHECK = BUILD / "tools" / "ttrace-check"
PASSED, VIOLATED, TROUBLE = 0, 1, 2
TRAINABLE, ROOT_INPUT, NO_GRADIENT = 1, 2, 8
F32 = np.float32


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def tensor(key: str, values, dtype: str = "float32", **more) -> dict:
    values = np.asarray(values)
    numbers = [int(v) if dtype in ("int64", "bool") else
               float(v) if math.isfinite(v) else repr(float(v)) for v in values.ravel()]
    return record(key, list(values.shape), numbers, dtype, **more)


def module(kind: str) -> dict:
    return {"class": kind, "forward": "model.py:1", "expected": True, "calls": 1,
            "returned_tensor": True}


class CheckTest(DiffTest):
    def trace(self, ranks: list, modules: dict | None = None, axes=None, updates=None,
              name: str = "run.trace"):
        """`ranks`: for each rank a list of iterations, each a list of records."""
        described = []
        for number, iterations in enumerate(ranks):
            info = {"world_size": len(ranks),
                    "modules": {key: module(kind) for key, kind in (modules or {}).items()}}
            if axes is not None:
                info["axes"] = axes(number)
            if updates is not None:
                info["updates"] = updates
            described.append({"rank": number, "rank_json": info, "segments": [
                {"iteration": i, "records": records} for i, records in enumerate(iterations)]})
        return self.write_ranks(name, described)

    def check(self, trace, code: int, *names: str) -> dict:
        """The results of the checks, by name."""
        chosen = ["--check", ",".join(names)] if names else []
        done = subprocess.run([CHECK, trace, *chosen, "--json", "-"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return {entry["name"]: entry for entry in json.loads(done.stdout)["checks"]}

    def only(self, result: dict) -> dict:
        self.assertEqual(len(result["violations"]), 1, result)
        return result["violations"][0]


def along(axis: str, size: int):
    return lambda rank: [{"name": axis, "size": size, "coord": rank}]


def dp_tp(rank: int) -> list:
    return [{"name": "dp", "size": 2, "coord": rank // 2}, {"name": "tp", "size": 2,
                                                            "coord": rank % 2}]
