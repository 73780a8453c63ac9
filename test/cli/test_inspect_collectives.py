# SPDX-License-Identifier: Apache-2.0
"""ttrace-inspect --collectives of a trace of two ranks, whose calls are told one by one."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])

PROGRAM = """
import errno, os, numpy
from ttrace_agent import abi
library = abi.Library.from_environment()
rank = int(os.environ["RANK"])
assert library.open(rank, 2) == 0
values = numpy.arange(4, dtype=numpy.float32)

def record(module, slot, microbatch):
    return library.record(abi.PHASES["comm"], 1, abi.KINDS["full"], (4,), microbatch, 0, 0, module,
                          slot, "", "", values.ctypes.data, abi.NOT_ALIAS)

def call(function, group, sequence, **more):
    result = library.record_collective(function, group, sequence=sequence, member=rank, size=2,
                                       **{"count": 4, "dtype": 1, **more})
    assert result == (0 if library.collectives_wanted() else -errno.ENOTCONN), library.last_error()

for iteration in range(2):
    assert library.begin_iteration(iteration) == 0
    before = record("layers.0.fc", "all_reduce.input", 1)
    call("all_reduce", "tp:0,1", 2 * iteration, reduction="sum", module="layers.0.fc", microbatch=1,
         flags=abi.IN_PLACE, position=before, input=before,
         output=record("layers.0.fc", "all_reduce.output", 1))
    call("all_to_all", "ep:0,1", 7, dtype=2, input_splits="1,3", module="experts", microbatch=-1)
call("reduce", "tp:0,1", 4, reduction="premul_sum", factor=0.5, peer=1, flags=abi.FAILED)
call("send" if rank == 0 else "recv", "pp:0,1", 0, peer=1 - rank,
     flags=abi.ASYNCHRONOUS | abi.IN_GROUP)
assert library.close() == 0
"""


class InspectCollectives(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="ttrace-inspect-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.trace = pathlib.Path(cls.scratch.name) / "two.trace"
        cls.record(cls.trace, "full")

    @staticmethod
    def record(trace, comm):
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TTRACE_")}
        for rank in range(2):
            subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60, env={
                **kept, "PYTHONPATH": str(SOURCE / "capture" / "python"), "RANK": str(rank),
                "WORLD_SIZE": "2", "TTRACE_OUT": str(trace), "TTRACE_COMM": comm,
                "TTRACE_WRITER": str(BUILD / "capture" / "ttrace-writer"),
                "TTRACE_LIB": str(BUILD / "capture" / "libttrace_capture.so")})

    def inspect(self, *arguments, trace=None, code=0):
        done = subprocess.run([BUILD / "tools" / "ttrace-inspect", trace or self.trace,
                               "--collectives", *arguments], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def calls(self, *arguments):
        return json.loads(self.inspect("--json", *arguments).stdout)["collectives"]

    def test_all_that_was_told_is_in_the_json(self):
        calls = self.calls()
        self.assertEqual([(call["iteration"], call["rank"], call["function"]) for call in calls],
                         [(0, 0, "all_reduce"), (0, 0, "all_to_all"),
                          (0, 1, "all_reduce"), (0, 1, "all_to_all"),
                          (1, 0, "all_reduce"), (1, 0, "all_to_all"), (1, 0, "reduce"),
                          (1, 0, "send"),
                          (1, 1, "all_reduce"), (1, 1, "all_to_all"), (1, 1, "reduce"),
                          (1, 1, "recv")])
        self.assertEqual(calls[2], {
            "iteration": 0, "rank": 1, "function": "all_reduce", "reduction": "sum", "factor": 1.0,
            "group": "tp:0,1", "sequence": 0, "member": 1, "size": 2, "peer": None,
            "dtype": "float32", "count": 4, "input_splits": None, "output_splits": None,
            "module": "layers.0.fc", "microbatch": 1, "flags": ["in place"], "position": 0,
            "input": "it0/mb1/comm/layers.0.fc/all_reduce.input",
            "output": "it0/mb1/comm/layers.0.fc/all_reduce.output"})
        self.assertEqual(calls[-1], {
            "iteration": 1, "rank": 1, "function": "recv", "reduction": None, "factor": 1.0,
            "group": "pp:0,1", "sequence": 0, "member": 1, "size": 2, "peer": 0,
            "dtype": "float32", "count": 4, "input_splits": None, "output_splits": None,
            "module": None, "microbatch": None, "flags": ["asynchronous", "in a group call"],
            "position": 2, "input": None, "output": None})

    def test_filters_choose(self):
        self.assertEqual({call["rank"] for call in self.calls("--rank", "1")}, {1})
        self.assertEqual({call["iteration"] for call in self.calls("--iteration", "0")}, {0})
        self.assertEqual({call["function"] for call in self.calls("--module", "exp*")},
                         {"all_to_all"})
        self.assertIn("none that passes", self.inspect("--module", "none", code=2).stderr)
        self.assertIn("is for tensors", self.inspect("--phase", "comm", code=2).stderr)

    def test_the_table_has_a_line_a_call(self):
        lines = [line.split("  ") for line in self.inspect("--rank", "0").stdout.splitlines()]
        lines = [[cell.strip() for cell in line if cell.strip()] for line in lines]
        self.assertEqual(lines[0], ["it", "rank", "group", "call", "what", "elements", "member",
                                    "module", "mb"])
        self.assertEqual(lines[1], ["0", "0", "tp:0,1", "0", "all_reduce sum", "float32 x 4",
                                    "0 of 2", "layers.0.fc", "1",
                                    "in place, input recorded, output recorded"])
        self.assertEqual(lines[2], ["0", "0", "ep:0,1", "7", "all_to_all",
                                    "bfloat16 x 4 (1,3 -> -)", "0 of 2", "experts", "-"])
        self.assertEqual(lines[5], ["1", "0", "tp:0,1", "4", "reduce premul_sum x 0.5, root 1",
                                    "float32 x 4", "0 of 2", "-", "-", "failed"])
        self.assertEqual(lines[6][4:], ["send to 1", "float32 x 4", "0 of 2", "-", "-",
                                        "asynchronous, in a group call"])
        self.assertEqual(len(lines), 7)

    def test_a_trace_without_any_says_how_to_get_some(self):
        trace = pathlib.Path(self.scratch.name) / "none.trace"
        self.record(trace, "")
        self.assertIn("--comm metadata", self.inspect(trace=trace, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
