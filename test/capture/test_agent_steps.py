#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is recorded of steps that other ranks make, and of steps with a closure."""
import json
import unittest

from agent_runs import BUILD, CaptureTest

PROGRAM = "steps_apart.py"


class StepsApart(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference, _ = cls.capture("reference", PROGRAM)

    def compared(self, name, *arguments, expected):
        self.capture(name, PROGRAM, "--two", *arguments, ranks=2)
        done = self.run_command([BUILD / "tools/ttrace-diff", self.scratch / "reference",
                                 self.scratch / name, "--json", "-"], expected)
        return json.loads(done.stdout)

    def test_every_rank_shows_every_parameter_after_the_step(self):
        report = self.compared("apart", expected=0)
        coverage = report["coverage"]
        self.assertEqual(coverage["compared"], coverage["expected"])
        keys = {line["key"] for line in report["tensors"]}
        for number in (0, 2):
            for slot in ("grad/{}.weight/reduced", "grad/{}.bias/reduced", "step/{}.weight/param"):
                self.assertIn("it0/" + slot.format(number), keys)

    def test_a_result_that_was_not_sent_is_found_in_the_first_iteration(self):
        report = self.compared("lost", "--lost", expected=1)
        self.assertEqual(report["first"]["key"], "it0/step/2.weight/param")
        self.assertEqual(report["findings"][0]["kind"], "replica_conflict")


if __name__ == "__main__":
    unittest.main()
