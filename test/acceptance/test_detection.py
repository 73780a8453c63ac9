# SPDX-License-Identifier: Apache-2.0
"""Ten rows of the detection benchmark: no false alarm in any mode, bugs named where they are."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])


class Detection(unittest.TestCase):
    def test_ten_rows(self):
        with tempfile.TemporaryDirectory(prefix="ttrace-test-") as folder:
            done = subprocess.run(
                [sys.executable, SOURCE / "bench/detection.py", "--few", "--tools", BUILD / "tools",
                 "-o", folder], capture_output=True, text=True, timeout=1400)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = [json.loads(file.read_text()) for file in pathlib.Path(folder).glob("rows/*")]
        self.assertEqual(len(rows), 10)
        for row in rows:
            modes = row["modes"]
            with self.subTest(row["name"]):
                if row["bug"]:
                    self.assertEqual((modes["local"]["verdict"], modes["local"]["exact"]),
                                     ("differs", True))
                else:
                    answers = {mode: modes[mode]["verdict"]
                               for mode in ("bound", "envelope", "own", "local")}
                    self.assertEqual(set(answers.values()), {"same"}, answers)


if __name__ == "__main__":
    unittest.main()
