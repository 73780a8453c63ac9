#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing changes when values are computed, not which keys they have.

The truth is the same model without checkpoints, whose activations and their gradients are the same
bits: every key of its trace must be there, with the same value, whatever the schedule. Gradients of
parameters are summed in another order, so they are compared with what the program itself saved.
"""
import unittest

import torch

from agent_runs import CaptureTest


class Recompute(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = cls.traced("none", "accumulate")

    @classmethod
    def traced(cls, how, schedule, *options):
        name = f"{how}-{schedule}{''.join(options)}"
        trace, _ = cls.capture(name, "checkpointed.py", how, schedule, f"{name}.pt",
                               options=options)
        segment = trace.segment()
        segment.gradients = torch.load(cls.scratch / f"{name}.pt")
        return segment

    def assert_parameters_are_right(self, segment):
        for name, gradient in segment.gradients:
            self.assert_same_bits(segment[f"grad/{name}/reduced"].value(), gradient, name)
            start = segment[f"param/{name}/value"].value()
            self.assert_same_bits(segment[f"step/{name}/param"].value(),
                                  start.add(gradient, alpha=-0.1), name)

    def assert_same_as_plain(self, segment):
        self.assertEqual(segment.keys(), self.plain.keys())
        for key in self.plain.keys("param", "forward", "backward"):
            self.assert_same_bits(segment[key].value(), self.plain[key].value(), key)
        self.assert_parameters_are_right(segment)

    def test_the_model_without_checkpoints(self):
        self.assert_parameters_are_right(self.plain)
        for call in range(3):  # the activation module of all layers
            number = f"#{call}" if call else ""
            self.assertIn(f"mb2/backward/layers.0.act{number}/grad_output.0", self.plain.keys())

    def test_reentrant(self):
        self.assert_same_as_plain(self.traced("reentrant", "accumulate"))

    def test_reentrant_with_one_forward_pass_ahead(self):
        self.assert_same_as_plain(self.traced("reentrant", "1f1b"))

    def test_reentrant_with_all_forward_passes_first(self):
        self.assert_same_as_plain(self.traced("reentrant", "gpipe"))

    def test_non_reentrant_with_one_forward_pass_ahead(self):
        self.assert_same_as_plain(self.traced("non-reentrant", "1f1b"))

    def test_all_records_the_second_pass_too(self):
        segment = self.traced("reentrant", "1f1b", "--what", "all")
        second = [row for row in segment.rows if row.phase == "recompute"]
        calls = {row.key.replace("/recompute/", "/forward/"): row for row in second
                 if row.slot == "output.0"}
        # Three micro-batches of 3 layers and twice `shared`, 4 modules each, and 2 of the pair.
        self.assertEqual(len(calls), 3 * (5 * 4 + 2))
        for key, row in calls.items():
            self.assert_same_bits(row.value(), self.plain[key].value(), key)


if __name__ == "__main__":
    unittest.main()
