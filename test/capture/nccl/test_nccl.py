# SPDX-License-Identifier: Apache-2.0
"""The NCCL recorder against a fake libnccl: every call once, results unchanged, programs unharmed.

usage: test_nccl.py RECORDER CLIENT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RECORDER, CLIENT = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])


def run(command, out=None):
    env = {**os.environ, "LD_PRELOAD": RECORDER, "RANK": "3"}
    env.pop("TTRACE_OUT", None)
    if out:
        env["TTRACE_OUT"] = out
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


class NcclRecorder(unittest.TestCase):
    def test_each_call_is_recorded_once_and_forwarded(self):
        with tempfile.TemporaryDirectory() as out:
            done = run([CLIENT], out)
            self.assertEqual((done.returncode, done.stdout), (0, "ok 2.5\n"), done.stderr)
            text = pathlib.Path(out, "nccl-3.jsonl").read_text()
            calls = [json.loads(line) for line in text.splitlines()]
        self.assertEqual(
            [call["call"] for call in calls],
            ["ncclCommInitRank", "ncclGroupStart", "ncclAllReduce", "ncclGroupEnd", "ncclBcast",
             "ncclCommDestroy"])
        self.assertEqual([call["sequence"] for call in calls], list(range(6)))
        reduce = calls[2]
        self.assertEqual((reduce["count"], reduce["dtype"], reduce["op"]), (1, 7, 0))
        self.assertEqual(len({call["comm"] for call in calls if call["comm"] != "(nil)"}), 1)

    def test_without_a_trace_directory_nothing_is_written(self):
        done = run([CLIENT])
        self.assertEqual((done.returncode, done.stdout), (0, "ok 2.5\n"), done.stderr)

    def test_a_program_without_nccl_is_unharmed(self):
        with tempfile.TemporaryDirectory() as out:
            self.assertEqual(run(["/bin/true"], out).returncode, 0)
            self.assertEqual(os.listdir(out), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
