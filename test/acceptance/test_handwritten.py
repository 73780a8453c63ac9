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
# Documents of random lengths in one sequence; others in each micro-batch.
PACKED = {"packed": (1, []), "packed-tp2": (2, ["--tp", "2"]),
          "packed-cp2": (2, ["--cp", "2", "--zigzag"])}
MANY_PACKED = {"packed-cp2-contiguous": (2, ["--cp", "2"]),
               "packed-cp4": (4, ["--cp", "4", "--zigzag"]),
               "packed-cp2-tp2-sp": (4, ["--cp", "2", "--tp", "2", "--zigzag", "--sp"]),
               "packed-pp2-cp2": (4, ["--pp", "2", "--cp", "2", "--zigzag"]),
               "packed-dp2-cp2": (4, ["--dp", "2", "--cp", "2", "--zigzag"])}


class Handwritten(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, (ranks, arguments) in {**LAYOUTS, **MANY}.items():
            cls.capture(name, launcher(TRAIN, ["--iters", "1", *arguments], ranks))
        for name, (ranks, arguments) in {**PACKED, **MANY_PACKED}.items():
            cls.capture(name, launcher(TRAIN, ["--iters", "1", "--packed", *arguments], ranks))

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

    def test_packed_documents(self):
        for reference, candidate in itertools.permutations(PACKED, 2):
            with self.subTest(reference=reference, candidate=candidate):
                self.check_same(self.diff(reference, candidate, expected=0))
        for name in MANY_PACKED:
            with self.subTest(name):
                self.check_same(self.diff("packed", name, expected=0))

    def test_a_rule_names_the_input_that_tells_of_documents(self):
        rules = self.traces / "rules"
        rules.write_text('forward/blocks.*/output.0 "b t[rank:zigzag(@input.3)] h"\n')
        report = self.diff("packed", "packed-cp2", expected=0, options=["--layout", rules])
        self.check_same(report)
        declared = [line for line in report["layouts"] if line["reason"].startswith("declared")]
        self.assertIn("forward/blocks.*.core/output.0", [line["tensors"] for line in declared])
        rules.write_text(rules.read_text().replace("input.3", "input.9"))
        report = self.diff("packed", "packed-cp2", expected=1, options=["--layout", rules])
        self.assertEqual({finding["kind"] for finding in report["findings"]},
                         {"layout_contradicted"})
        self.assertIn("@input.9", report["findings"][0]["message"])


if __name__ == "__main__":
    unittest.main()
