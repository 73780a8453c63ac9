# SPDX-License-Identifier: Apache-2.0
"""The counter of test results: broken builds and empty logs never look green."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNTER = pathlib.Path(__file__).resolve().parents[1] / "count_results.py"


def count(results, make=True):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "testlog.json")
        if make:
            log.write_text("".join(
                json.dumps({"name": f"t{i}", "result": result, "returncode": 0}) + "\n"
                for i, result in enumerate(results)))
        done = subprocess.run([sys.executable, COUNTER, log], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]


class CountResults(unittest.TestCase):
    def test_passed_failed_and_skipped_are_counted(self):
        self.assertEqual(count(["OK", "OK", "SKIP"]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertEqual(count(["OK", "FAIL", "TIMEOUT", "ERROR"]), (1, "1 passed, 3 failed"))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(count([]), (1, "0 passed, 1 failed"))
        self.assertEqual(count([], make=False), (1, "0 passed, 1 failed"))
        self.assertEqual(count(["SKIP"])[0], 1)


if __name__ == "__main__":
    unittest.main()
