# SPDX-License-Identifier: Apache-2.0
"""A program that cuts its tensors by hand and declares nothing: every layout is found by content,
whichever run is the reference."""
import itertools
import unittest

from runs import SOURCE, Runs, launcher

TRAIN = SOURCE / "samples/handwritten/train.py"
# name: (ranks, arguments)
LAYOUTS = {"one": (1, []), "tp2": (2, ["--tp", "2"]), "cp2": (2, ["--cp", "2", "--zigzag"]),
           "pp2": (2, ["--pp", "2"]), "dp2": (2, ["--dp", "2"])}
MANY = {"pp2-dp2-tp2": (8, ["--pp", "2", "--dp", "2", "--tp", "2"]),
        "cp2-tp2-sp": (4, ["--cp", "2", "--tp", "2", "--zigzag", "--sp"])}
CUT_DATA = {"cp2", "dp2"}  # neither of two such runs has whole micro-batches


class Handwritten(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, (ranks, arguments) in {**LAYOUTS, **MANY}.items():
            cls.capture(name, launcher(TRAIN, ["--iters", "1", *arguments], ranks))

    def test_each_layout_against_each_other(self):
        for reference, candidate in itertools.permutations(LAYOUTS, 2):
            if {reference, candidate} == CUT_DATA:
                continue
            with self.subTest(reference=reference, candidate=candidate):
                self.check_same(self.diff(reference, candidate, expected=0))

    def test_many_ranks_against_one(self):
        for name in MANY:
            with self.subTest(name):
                self.check_same(self.diff("one", name, expected=0))


if __name__ == "__main__":
    unittest.main()
