#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ttrace_agent.signatures against the table that TrainCheck's own encoding gave."""
import gzip
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "capture" / "python"))

import torch  # noqa: E402

from ttrace_agent import signatures  # noqa: E402


class Signatures(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def run_module(self, *words, code=0):
        done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "capture" / "python")})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def trace(self, *lines):
        (self.folder / "trace_API_1_2.log").write_text("".join(line + "\n" for line in lines))
        return self.folder

    def test_golden_names(self):
        golden = json.loads(gzip.decompress(
            (ROOT / "test" / "golden" / "signatures.json.gz").read_bytes()))
        names = [name for name in golden if not name.endswith("@class")]
        trace = self.trace(*(json.dumps({"function": name, "args": {"0": {"function": "no"}}})
                             for name in names))
        done = self.run_module("-m", "ttrace_agent.signatures", trace)
        self.assertEqual(json.loads(done.stdout), golden)

    def test_damaged_lines_are_left_out(self):
        trace = self.trace('{"function": "torch.compiler.is_compiling"}', "", "{", "[1]",
                           '{"function": 3}', '{"a": 1, "function": "torch.comp',
                           '{"function":"torch.compiler.is_exporting","time":3}')
        module = ROOT / "capture" / "python" / "ttrace_agent" / "signatures.py"
        done = self.run_module(module, trace / "trace_API_1_2.log")
        self.assertEqual(json.loads(done.stdout), {"torch.compiler.is_compiling": [],
                                                   "torch.compiler.is_exporting": []})

    def test_no_trace_is_trouble(self):
        self.assertIn("trace_API_", self.run_module("-m", "ttrace_agent.signatures", self.folder,
                                                    code=2).stderr)
        self.run_module("-m", "ttrace_agent.signatures", self.folder / "none", code=2)
        self.run_module("-m", "ttrace_agent.signatures", code=2)

    def test_defaults_are_typed_values(self):
        class Kind:
            size, name, _hidden, shape = 3, "x", 1, [1]

        for value, expected in (
                (None, {"NoneType": None}), (True, {"bool": True}), (2, {"int": 2}),
                (-math.inf, {"float": -math.inf}), ("a", {"str": "a"}),
                ((0.9, 0.999), {"tuple": [0.9, 0.999]}), ({"a": 1}, {"dict": {"a": 1}}),
                (torch.bfloat16, {"torch.dtype": "torch.bfloat16"}),
                (torch.Size([4, 3]), {"torch.Size": [4, 3]}),
                (Kind(), {f"{__name__}.{Kind.__qualname__}": {"name": "x", "size": 3}})):
            self.assertEqual(signatures.typed(value), expected)

    def test_names_that_are_none(self):
        table = signatures.table_of(["relu", "torch.relu", "no.such.module.f",
                                     "__main__.Net.forward", "torch.cuda.<lambda>"])
        self.assertEqual(set(table.values()), {None})


if __name__ == "__main__":
    unittest.main()
