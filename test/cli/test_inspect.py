# SPDX-License-Identifier: Apache-2.0
"""ttrace-inspect as a user runs it."""
from __future__ import annotations

import json
import struct
import subprocess
import unittest

from made_traces import INSPECT, TROUBLE, DiffTest, step, values


class Inspect(DiffTest):
    def setUp(self):
        super().setUp()
        self.trace = self.write("one.trace", step())

    def inspect(self, *arguments, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([INSPECT, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_contents(self):
        contents = json.loads(self.inspect(self.trace, "--json").stdout)
        self.assertEqual(contents["phases"]["forward"]["tensors"], 6)
        self.assertEqual(contents["ranks"][0]["modules"], 7)
        self.assertNotIn("tensors", contents)
        self.assertIn("forward", self.inspect(self.trace).stdout)

    def test_a_filter_lists_tensors(self):
        contents = json.loads(self.inspect(self.trace, "--json", "--phase", "forward",
                                           "--module", "layers.*").stdout)
        self.assertEqual([tensor["key"] for tensor in contents["tensors"]],
                         [f"it0/mb0/forward/layers.{i}.fc/output.0" for i in range(2)])

    def test_a_filter_that_passes_nothing_is_trouble(self):
        self.assertIn("no tensor passes", self.inspect(self.trace, "--module", "nosuch", code=TROUBLE).stderr)

    def test_one_tensor(self):
        key = "it0/mb0/forward/head/output.0"
        shard = json.loads(self.inspect(self.trace, key, "--json").stdout)["shards"][0]
        numbers = next(entry["values"] for entry in step() if entry["key"] == key)
        self.assertAlmostEqual(shard["norm"], sum(v * v for v in numbers) ** 0.5, places=9)
        self.assertEqual(shard["max"], max(numbers))
        self.assertIn("norm", self.inspect(self.trace, key).stdout)

    def test_get_writes_what_numpy_reads(self):
        key = "it0/mb0/forward/head/output.0"
        path = self.folder / "x.npy"
        self.inspect(self.trace, "--get", key, "-o", path)
        data = path.read_bytes()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        length = struct.unpack("<H", data[8:10])[0]
        self.assertEqual((10 + length) % 64, 0)
        header = eval(data[10:10 + length].decode(), {"__builtins__": {}})
        self.assertEqual(header, {"descr": "<f4", "fortran_order": False, "shape": (8, 6)})
        numbers = next(entry["values"] for entry in step() if entry["key"] == key)
        self.assertEqual(list(struct.unpack("<48f", data[10 + length:])), numbers)

    def test_a_key_that_is_not_there(self):
        done = self.inspect(self.trace, "it0/mb0/forward/head/output.7", code=TROUBLE)
        self.assertIn("it0/mb0/forward/head/output.0", done.stderr)

    def test_no_key_at_all(self):
        self.assertIn("is no key", self.inspect(self.trace, "nonsense", code=TROUBLE).stderr)


if __name__ == "__main__":
    unittest.main()
