# SPDX-License-Identifier: Apache-2.0
"""A rank killed at a random moment loses at most the record in flight.

A C program records numbered tensors of mixed sizes and says "returned n" after each call. It is
killed with SIGKILL at random moments; every record whose call had returned must be in the segment,
byte for byte.
"""
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

import h5py
import numpy

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
CAPTURE = BUILD / "tools/ttrace-capture"
CLIENT = BUILD / "test/capture/abi_client"
TRIALS = 24
SEED = int(os.environ.get("TTRACE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


def expected_bytes(n):
    """As abi_client.c makes them."""
    size = 1 << 20 if n % 17 == 16 else n * 7919 % 40000
    i = numpy.arange(size, dtype=numpy.uint64)
    return (i * 31 + n * 17 + (i >> numpy.uint64(8))).astype(numpy.uint8)


class Sigkill(unittest.TestCase):
    def test_returned_records_survive(self):
        print(f"TTRACE_TEST_SEED={SEED}")
        moments = random.Random(SEED)
        kept = 0
        for trial in range(TRIALS):
            kept += self.one_trial(trial, moments)
        print(f"{kept} records had returned in {TRIALS} trials")
        self.assertGreater(kept, TRIALS, "killed too early to prove anything")

    def one_trial(self, trial, moments):
        with tempfile.TemporaryDirectory(prefix="ttrace-test-") as folder:
            trace = pathlib.Path(folder) / "run.trace"
            ring = moments.choice(["64K", "1M", "64M"])
            run = subprocess.Popen(
                [CAPTURE, "-q", "-o", trace, "--ring", ring, "--", "sh", "-c",
                 f"{CLIENT} numbered 100000 & echo $!; wait $!"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            lines = [run.stdout.readline(), run.stdout.readline()]  # the shell's and the first one
            pid = int(next(line for line in lines if not line.startswith("returned")))
            time.sleep(moments.uniform(0, 0.15))
            os.kill(pid, signal.SIGKILL)
            lines += run.stdout.readlines()
            self.assertEqual(run.wait(timeout=120), 128 + 9)
            run.stdout.close()
            self.assertEqual(lines[2:], [f"returned {n}\n" for n in range(1, len(lines) - 1)])
            self.check(trial, trace, len(lines) - 1)
            return len(lines) - 1

    def check(self, trial, trace, returned):
        files = sorted(path.name for path in (trace / "rank00000").iterdir())
        self.assertEqual(files, ["it000000.h5", "rank.json"], f"trial {trial}")
        with h5py.File(trace / "rank00000/it000000.h5", "r") as segment:
            self.assertEqual(segment.attrs["complete"], 0)
            stored = segment["data/mb0/forward"]
            # The call of one more record may have copied everything without having returned.
            self.assertIn(len(stored), (returned, returned + 1), f"trial {trial}")
            self.assertEqual(len(segment["index"]), len(stored))
            for n in range(len(stored)):
                dataset = stored[f"record.{n}/output.0"]
                values = dataset[()] if dataset.shape else numpy.empty(0)  # of size 0: no shape
                self.assertTrue(numpy.array_equal(values, expected_bytes(n)),
                                f"trial {trial}: record {n} is damaged")


if __name__ == "__main__":
    unittest.main()
