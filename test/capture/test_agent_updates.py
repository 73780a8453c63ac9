#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Updates without an optimizer, several in an iteration, and models that are wrapped late.

The expected values follow from programs/updates.py: the gradient of W is the sum of the samples.
"""
import unittest

import torch

from agent_runs import CaptureTest

GRADIENT = torch.tensor([[1.5, 2.25, 3.125]]).expand(2, 3)
RATE = 0.5


class Updates(CaptureTest):
    def traced(self, case, **more):
        trace, _ = self.capture(case, "updates.py", case, options=["--iterations", "0-"], **more)
        return trace

    def assert_updated(self, segment, updates=1, call=""):
        before = segment["param/weight/value"].value()
        after = segment[f"step/weight{call}/param"].value()
        torch.testing.assert_close(after, before - updates * RATE * GRADIENT)

    def test_what_optimizers_are_told_is_in_rank_json(self):
        trace, _ = self.capture("told", "told.py", options=["--iterations", "0-1"])
        updates = trace.rank()["updates"]
        self.assertEqual(sorted(updates), ["0", "1"])
        told = {name: (entry["class"].split(".")[-1], entry["values"], entry["steps"])
                for entry in updates["1"] for name in entry["parameters"]}
        self.assertEqual(set(told), {f"layers.{name}.weight" for name in ("a", "b", "late", "c")})
        kind, values, steps = told["layers.b.weight"]
        self.assertEqual((kind, values["lr"], values["betas"], steps),
                         ("AdamW", 0.25, [0.5, 0.75], 1))
        # The two of one group: one was stepped before, the other had no gradient then.
        self.assertEqual(told["layers.a.weight"][2], [1, 0])
        self.assertEqual(told["layers.a.weight"][1]["lr"], 0.125)
        # SGD does not count, but has a state; its rate was halved by the schedule.
        kind, values, steps = told["layers.c.weight"]
        self.assertEqual((kind, values["lr"], values["momentum"], steps), ("SGD", 0.25, 0.9, None))
        first = {name for entry in updates["0"] for name in entry["parameters"]}
        self.assertEqual(first, {f"layers.{name}.weight" for name in ("a", "b", "c")})
        self.assertEqual([entry["steps"] for entry in updates["0"]], [0, 0, 0])

    def test_an_update_by_hand_ends_the_iteration(self):
        trace = self.traced("by-hand")
        self.assertEqual(trace.iterations(), [0, 1])
        for iteration in (0, 1):
            segment = trace.segment(iteration)
            self.assertTrue(segment.complete)
            self.assertEqual({row.microbatch for row in segment.rows}, {-1, 0, 1})
            self.assert_updated(segment)
        # The first iteration's gradients were cleared before anybody could see that it was over,
        # the last one's were not.
        self.assertEqual(trace.segment(0).keys("grad"), set())
        self.assertEqual(trace.events(), {("not recorded", "grad")})
        self.assertEqual(trace.segment(1).keys("grad"),
                         {"grad/weight/reduced", "grad/bias/reduced"})

    def test_a_mark_keeps_the_gradients(self):
        trace = self.traced("marked")
        self.assertEqual(trace.iterations(), [0, 1])
        self.assertEqual(trace.events(), set())
        for iteration in (0, 1):
            segment = trace.segment(iteration)
            self.assert_updated(segment)
            torch.testing.assert_close(segment["grad/weight/reduced"].value(), GRADIENT)

    def test_a_second_step_is_a_second_call(self):
        trace = self.traced("twice")
        self.assertEqual(trace.iterations(), [0, 1])
        segment = trace.segment()
        self.assert_updated(segment)
        self.assert_updated(segment, updates=2, call="#1")
        torch.testing.assert_close(segment["grad/weight#1/reduced"].value(), GRADIENT)

    def test_a_model_that_is_wrapped_after_its_first_call_keeps_its_names(self):
        trace = self.traced("wrapped")
        segment = trace.segment()
        self.assertLessEqual({"param/0.weight/value", "mb0/forward/0/output.0",
                              "grad/0.weight/reduced", "step/0.weight/param"}, segment.keys())
        self.assertEqual({row.microbatch for row in segment.rows}, {-1, 0})
        self.assertEqual(set(trace.rank()["parameters"]), {"0.weight", "0.bias"})

    def test_an_exception_before_the_step_is_told(self):
        trace = self.traced("raise", expected=1)
        self.assertIn("mb0/backward/@root/grad_output.0", trace.segment().keys())
        self.assertEqual(trace.events(), {("exception", "iteration 0")})
        self.assertIn("before the step", str(trace.rank()["events"]))


if __name__ == "__main__":
    unittest.main()
