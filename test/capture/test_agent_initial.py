#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--init-from: other layouts start from the same parameters, or the run ends with a reason."""
import unittest

import torch

from agent_runs import CaptureTest


class InitialParameters(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference, cls.alone = cls.capture("reference", "parallel.py", "single", "single.pt")
        cls.start = cls.parameters(cls.reference.segment())

    @staticmethod
    def parameters(segment):
        return {row.module: row.value() for row in segment.rows if row.phase == "param"}

    def traced(self, name, mode, init, ranks=2, options=(), expected=0):
        trace, self.done = self.capture(name, "parallel.py", mode, f"{name}.pt", ranks=ranks,
                                        options=["--init-from", init, *options],
                                        expected=expected)
        return trace

    def assert_pieces(self, trace, cut):
        """Each rank's parameters are `cut(name, whole, rank)` of the reference's."""
        for rank in range(2):
            found = self.parameters(trace.segment(0, rank))
            self.assertEqual(found.keys(), self.start.keys())
            for name, value in found.items():
                self.assert_same_bits(value, cut(name, self.start[name], rank), f"{name} {rank}")

    def test_a_dtensor_takes_its_part(self):
        def cut(name, whole, rank):
            dims = {"embedding.weight": 0, "up.weight": 0, "down.weight": 1}
            return whole.chunk(2, dims[name])[rank] if name in dims else whole

        trace = self.traced("tp", "tp", self.reference.path, options=["--filter", "param/*"])
        self.assert_pieces(trace, cut)

    def test_fsdp_takes_its_rows(self):
        trace = self.traced("fsdp", "fsdp", self.reference.path)
        self.assert_pieces(trace, lambda name, whole, rank: whole.chunk(2, 0)[rank])

    def test_whole_parameters_need_no_layout(self):
        trace = self.traced("ddp", "ddp", self.reference.path)
        self.assert_pieces(trace, lambda name, whole, rank: whole)

    def test_a_parameter_that_the_trace_has_not_ends_the_run(self):
        self.traced("missing", "manual", self.reference.path, expected=2)
        self.assertIn("ttrace-capture: --init-from: down.partial.weight: the trace has no such "
                      "parameter", self.done.stderr)

    def test_a_seed_gives_the_same_model_in_every_layout(self):
        whole = self.parameters(self.traced("seed", "single", "seed:7", ranks=1).segment())
        cut = self.traced("seed-tp", "tp", "seed:7")
        parts = [self.parameters(cut.segment(0, rank)) for rank in range(2)]
        for name, dim in (("embedding.weight", 0), ("up.weight", 0), ("down.weight", 1)):
            self.assert_same_bits(torch.cat([part[name] for part in parts], dim), whole[name], name)
            self.assertFalse(torch.equal(whole[name], self.start[name]))
        for name in ("norm.weight", "norm.bias"):  # ones and zeros stay
            self.assert_same_bits(whole[name], self.start[name], name)
        # Uniform with a standard deviation of 1 / sqrt(columns).
        values = torch.cat([whole["embedding.weight"].flatten() * 8 ** 0.5,
                            whole["up.weight"].flatten() * 8 ** 0.5,
                            whole["down.weight"].flatten() * 12 ** 0.5])
        self.assertLess(values.abs().max().item(), 3 ** 0.5)
        self.assertAlmostEqual(values.std().item(), 1.0, delta=0.1)
        other = self.parameters(self.traced("seed8", "single", "seed:8", ranks=1).segment())
        self.assertFalse(torch.equal(whole["up.weight"], other["up.weight"]))


class CutByHand(CaptureTest):
    """The rules of a --layout file, for a program whose parameters say nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole, _ = cls.capture("whole", "cut_by_hand.py", ranks=1)
        cls.rules = cls.scratch / "rules.layout"

    def traced(self, name, rules, expected=0):
        self.rules.write_text(rules)
        trace, self.done = self.capture(
            name, "cut_by_hand.py", ranks=2, expected=expected,
            options=["--init-from", self.whole.path, "--layout", self.rules])
        return trace

    def test_a_rule_says_how_it_is_cut(self):
        trace = self.traced("ruled", 'fused "[rank:(4,2,2)] -"\n')
        fused = self.whole.segment()["param/fused/value"].value()
        q, k, v = fused.split([4, 2, 2])
        for rank in range(2):
            row = trace.segment(0, rank)["param/fused/value"]
            expected = torch.cat([part.chunk(2)[rank] for part in (q, k, v)])
            self.assert_same_bits(row.value(), expected)
            self.assertEqual(row.layout["dims"], "[rank:(4,2,2)] -")
            self.assertEqual(row.layout["source"], "file")

    def test_without_one_the_run_ends_and_names_the_parameter(self):
        self.traced("unruled", "other [rank]\n", expected=2)
        self.assertIn("ttrace-capture: --init-from: fused: (4, 3) here, (8, 3) in the trace, and "
                      "nothing declares how it is cut: say it in a --layout file", self.done.stderr)

    def test_a_rule_that_does_not_fit_ends_it_too(self):
        self.traced("misruled", 'fused "- [rank]"\n', expected=2)
        self.assertIn("fused: its layout '- [rank]' gives this rank (8, 2), but it holds (4, 3)",
                      self.done.stderr)


if __name__ == "__main__":
    unittest.main()
