# SPDX-License-Identifier: Apache-2.0
"""The fake NCCL and CUDA runtime: programs of 1 to 4 ranks compute what they must.

usage: test_fake_nccl.py CLIENT
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CLIENT = str(pathlib.Path(sys.argv[1]).resolve())


def run(scenario, ranks, **settings):
    """Each rank's (exit code, stderr)."""
    with tempfile.TemporaryDirectory() as directory:
        started = [subprocess.Popen(
            [CLIENT, scenario], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                 "NCCL_ID_DIR": directory, "FAKE_NCCL_TIMEOUT": "20", **settings})
            for rank in range(ranks)]
        return [(one.communicate(timeout=120)[1], one.returncode) for one in started]


class FakeNccl(unittest.TestCase):
    def check(self, scenario, ranks, **settings):
        self.assertEqual(run(scenario, ranks, **settings), [("", 0)] * ranks, scenario)

    def test_results_are_right_for_any_number_of_ranks(self):
        for ranks in (1, 2, 4):
            for scenario in ("every_collective", "in_place", "types", "grouped", "non_blocking",
                             "scaled", "errors"):
                with self.subTest(scenario=scenario, ranks=ranks):
                    self.check(scenario, ranks)

    def test_divided_communicators(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                self.check("split", ranks)
                self.check("grow", ranks)

    def test_several_communicators_in_one_process(self):
        self.check("threads", 1)

    def test_lazy_streams_give_the_same_results(self):
        for scenario in ("every_collective", "in_place", "grouped", "split", "scaled",
                         "non_blocking"):
            with self.subTest(scenario=scenario):
                self.check(scenario, 4, FAKE_CUDA_LAZY="1")

    def test_a_missing_wait_is_seen_each_time_when_streams_are_lazy(self):
        for _ in range(5):
            self.check("missing_wait", 2, FAKE_CUDA_LAZY="1")

    def test_a_rank_that_never_comes_is_an_error(self):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run(
                [CLIENT, "every_collective"], capture_output=True, text=True, timeout=60,
                env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "NCCL_ID_DIR": directory,
                     "FAKE_NCCL_TIMEOUT": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("remote process exited", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
