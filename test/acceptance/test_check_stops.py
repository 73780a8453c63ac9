# SPDX-License-Identifier: Apache-2.0
"""Runs that end in a collective: ttrace-check says which rank never came to it, and what it did."""
import json
import unittest

from runs import SOURCE, TOOLS, Runs, launcher, run, torchrun

PROGRAM = SOURCE / "test/acceptance/programs/stops.py"


class Stops(Runs):
    def check(self, mode, start=launcher):
        done = run([TOOLS / "ttrace-capture", "--comm", "metadata", "--iterations", "0-3", "-o",
                    self.traces / mode, "--", *start(PROGRAM, [mode], 2)], expected=None)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        done = run([TOOLS / "ttrace-check", self.traces / mode, "--json", "-"], expected=None)
        document = json.loads(done.stdout)
        self.assertRegex(document["ends_early"], "^the run ended with exit code [1-9]")
        self.assertIn(document["ends_early"],
                      run([TOOLS / "ttrace-check", self.traces / mode], expected=None).stdout)
        return {entry["name"]: entry["violations"] for entry in document["checks"]
                if entry["violations"]}

    def missed(self, mode, start=launcher, certainties=("likely",)):
        """What rank 1 is said to have done. Rank 0 fails, or is killed by the launcher first."""
        (name, (found,)), = self.check(mode, start).items()
        self.assertEqual((name, found["ranks"], found["iteration"]), ("ended", [1], 2))
        self.assertIn(found["certainty"], certainties)
        # 6 calls in each iteration of 4 parameters, 4 of them on the first group.
        self.assertRegex(found["what"], r"^all_reduce \(sum\), call 9 of group .*: (it failed on "
                         r"rank 0|rank 0 ended in it), rank 1 never called it$")
        self.assertRegex(found["evidence"]["rank 1 called last"], r"call 8 of .*, iteration 2$")
        return found["evidence"]["rank 1 ended"]

    def test_a_rank_that_ends(self):
        self.assertEqual(self.missed("raise"), "in iteration 2: ValueError('a bad sample')")
        self.assertEqual(self.missed("exit", certainties=("likely", "possible")),
                         "in iteration 2: its process was gone, or killed")

    def test_a_rank_that_ends_between_two_steps(self):
        (found,) = self.check("loader")["ended"]
        self.assertEqual((found["ranks"], found["iteration"], found["certainty"]), ([1], 2, "likely"))
        self.assertEqual(found["evidence"]["rank 1 ended"],
                         "after iteration 1: OSError('a file is gone')")

    def test_a_rank_that_never_comes(self):
        self.assertEqual(self.missed("sleep", torchrun),
                         "in iteration 2: its process was gone, or killed")

    def test_a_call_left_out(self):
        found = self.check("skip")
        self.assertEqual(list(found), ["order"])
        # Rank 0 is in the reduction of a bias of 8, rank 1 in that of 1.
        self.assertRegex(found["order"][0]["what"], "call 10 .* its count .*1 elements.*8 elements")

    def test_groups_in_another_order(self):
        found = self.check("crossed")
        (ring,) = found["ended"]
        self.assertEqual((ring["ranks"], ring["iteration"]), ([0, 1], 2))
        self.assertEqual(ring["what"], "ranks wait for each other in different collectives")


if __name__ == "__main__":
    unittest.main()
