# SPDX-License-Identifier: Apache-2.0
"""Made-up traces for tests of ttrace-diff and ttrace-inspect: real files, which
test/diff/make_trace.cpp writes, of a training step of an embedding, some blocks and a head.
"""
from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
DIFF = BUILD / "tools" / "ttrace-diff"
INSPECT = BUILD / "tools" / "ttrace-inspect"
MAKE_TRACE = BUILD / "test" / "make_trace"

SAME, DIFFERS, TROUBLE = 0, 1, 2


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def values(seed: int, count: int) -> list[float]:
    source = random.Random(seed)
    return [single(source.gauss(0, 1)) for _ in range(count)]


def record(key: str, shape: list[int], numbers: list, dtype: str = "float32", **more) -> dict:
    return {"key": key, "dtype": dtype, "shape": shape, "values": numbers, **more}


def step(layers: int = 2) -> list[dict]:
    """A training step of an embedding, some blocks and a head, in execution order."""
    modules = ["embedding", *(f"layers.{i}.fc" for i in range(layers)), "head"]
    records = [record(f"it0/param/{name}.weight/value", [4, 6], values(100 + i, 24))
               for i, name in enumerate(modules)]
    records.append(record("it0/mb0/forward/@root/input.tokens", [8], list(range(8)), "int64"))
    records += [record(f"it0/mb0/forward/{name}/output.0", [8, 6], values(200 + i, 48))
                for i, name in enumerate(modules)]
    records.append(record("it0/mb0/forward/@root/output.0", [], [2.5]))
    records += [record(f"it0/mb0/backward/{name}/grad_output.0", [8, 6], values(300 + i, 48))
                for i, name in reversed(list(enumerate(modules)))]
    for i, name in enumerate(modules):
        records.append(record(f"it0/grad/{name}.weight/reduced", [4, 6], values(400 + i, 24)))
        records.append(record(f"it0/step/{name}.weight/param", [4, 6], values(500 + i, 24)))
    return records


def rank_json(layers: int = 2, world_size: int = 1, **more) -> dict:
    modules = ["embedding", *(f"layers.{i}.fc" for i in range(layers)), "head"]
    info = {"class": "Linear", "forward": "model.py:12", "expected": True, "calls": 1,
            "returned_tensor": True}
    container = {"class": "ModuleList", "expected": False, "calls": 0, "returned_tensor": False}
    return {
        "world_size": world_size,
        "modules": {**{name: dict(info) for name in modules}, "layers": container,
                    **{f"layers.{i}": {**info, "class": "Block", "expected": False}
                       for i in range(layers)}},
        "parameters": {f"{name}.weight": {"shape": [4, 6], "dtype": "float32", "trainable": True}
                       for name in modules},
        **more,
    }


def with_error(numbers: list[float], relative: float) -> list[float]:
    source = random.Random(9)
    return [single(value * (1 + relative * source.gauss(0, 1))) for value in numbers]

class DiffTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ttrace-diff-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def write(self, name: str, records: list[dict], **rank) -> pathlib.Path:
        return self.write_ranks(name, [{"rank": 0, "rank_json": rank_json(**rank), "segments": [
            {"iteration": 0, "records": records}]}])

    def write_ranks(self, name: str, ranks: list[dict]) -> pathlib.Path:
        path = self.folder / name
        subprocess.run([MAKE_TRACE], input=json.dumps({"path": str(path), "ranks": ranks}),
                       text=True, check=True, timeout=60)
        return path

    def changed(self, change) -> pathlib.Path:
        """A candidate: the step after `change(records by key)`."""
        records = {entry["key"]: copy.deepcopy(entry) for entry in step()}
        change(records)
        return self.write("candidate.trace", list(records.values()))

    def diff(self, *arguments, code: int) -> subprocess.CompletedProcess:
        done = subprocess.run([DIFF, *map(str, arguments)], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, reference, candidate, *options, code: int) -> dict:
        done = self.diff(reference, candidate, "--json", "-", *options, code=code)
        return json.loads(done.stdout)
