#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The agent's bindings of the C interface: what they tell is what h5py finds in the trace."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", SOURCE / "build"))

# Each line of its output is what one call returned.
PROGRAM = """
import numpy
from ttrace_agent import abi
library = abi.Library.from_environment()
say = lambda value: print(value, flush=True)
say(library.collectives_wanted())
say(library.open(0, 4))
say(library.axis("tp", 2, 1))
say(library.group("model parallel", [3, 1]))
say(library.begin_iteration(2))
say(library.begin_microbatch(5))
say(library.push_scope("layers.0"))
say(library.scope())
values = numpy.arange(6, dtype=numpy.float32)
say(library.record(abi.PHASES["comm"], 1, abi.KINDS["full"], (6,), abi.CURRENT, 0, 0, "layers.0",
                   "all_to_all.input", "", "", values.ctypes.data, abi.NOT_ALIAS))
say(library.record_collective("all_to_all", "model parallel", sequence=9, member=1, size=2, count=3,
                              dtype=1, flags=abi.ASYNCHRONOUS | abi.IN_GROUP, input=0, position=0,
                              input_splits="2,4", output_splits="3,3"))
say(library.record_collective("reduce", "model parallel", sequence=2**63, member=0, size=2,
                              count=2**40, dtype=2, reduction="premul_sum", module="", peer=1,
                              microbatch=-1, factor=0.375))
say(library.record_collective("send", "model parallel", sequence=0, member=0, size=2, count=1,
                              dtype=1, peer=2))
say(library.last_error())
say(library.pop_scope())
say(library.close())
"""


class Bindings(unittest.TestCase):
    def test_calls_arrive_with_all_that_was_told(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {name: text for name, text in os.environ.items()
                           if not name.startswith("TTRACE_") and name not in ("RANK", "WORLD_SIZE")}
            environment.update(
                PYTHONPATH=str(SOURCE / "capture" / "python"), TTRACE_OUT=folder,
                TTRACE_COMM="full", TTRACE_WRITER=str(BUILD / "capture" / "ttrace-writer"),
                TTRACE_LIB=str(BUILD / "capture" / "libttrace_capture.so"))
            said = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True,
                                  capture_output=True, text=True, timeout=60).stdout.splitlines()
            self.assertEqual(said, ["3", "0", "0", "0", "0", "0", "0", "layers.0", "0", "0", "0",
                                    "-22", "ttrace_record_collective send: peer 2 is not in a group"
                                    " of 2", "0", "0"])
            rank = json.loads((pathlib.Path(folder) / "rank00000" / "rank.json").read_text())
            self.assertEqual(rank["axes"], [{"name": "tp", "size": 2, "coord": 1}])
            self.assertEqual(rank["groups"], {"model parallel": [3, 1]})
            with h5py.File(pathlib.Path(folder) / "rank00000" / "it000002.h5") as file:
                self.check(file)

    def check(self, file):
        texts = [text.decode() for text in file["names"]] + [None]  # row -1
        rows = file["collectives"][:]
        self.assertEqual(len(rows), 2)
        first, second = ({name: row[name].item() for name in rows.dtype.names} for row in rows)
        for row in (first, second):
            for name in ("group", "function", "reduction", "module", "input_splits",
                         "output_splits"):
                row[name] = texts[row[name]]
        self.assertEqual(first, {
            "group": "model parallel", "function": "all_to_all", "reduction": None,
            "module": "layers.0", "input_splits": "2,4", "output_splits": "3,3", "sequence": 9,
            "member": 1, "size": 2, "peer": -1, "microbatch": 5, "dtype": 1, "flags": 6,
            "count": 3, "factor": 1.0, "input": 0, "output": -1, "position": 0})
        self.assertEqual(second, {
            "group": "model parallel", "function": "reduce", "reduction": "premul_sum",
            "module": None, "input_splits": None, "output_splits": None, "sequence": 2**63,
            "member": 0, "size": 2, "peer": 1, "microbatch": -1, "dtype": 2, "flags": 0,
            "count": 2**40, "factor": 0.375, "input": -1, "output": -1, "position": 1})
        numpy.testing.assert_array_equal(file["data/mb5/comm/layers.0/all_to_all.input"],
                                         numpy.arange(6, dtype=numpy.float32))


if __name__ == "__main__":
    unittest.main()
