#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All kinds of tensors, mixed precision, several models, compiled code, programs that say more."""
import unittest

import torch

from agent_runs import BUILD, CaptureTest


class Unusual(CaptureTest):
    def traced(self, case, *options):
        trace, self.done = self.capture(case, "unusual.py", case, f"{case}.pt", options=options)
        return trace, torch.load(self.scratch / f"{case}.pt")

    def test_every_kind_of_tensor_is_recorded_or_said_to_be_missing(self):
        trace, saved = self.traced("zoo")
        segment = trace.segment()
        for name, value in saved.items():
            key = f"mb0/forward/known.{name.lower()}/output.0"
            if name in ("Sparse", "Text", "Unregistered"):
                self.assertNotIn(key, segment.keys())
                continue
            if name == "Complex":
                value = torch.view_as_real(value)
            elif name == "Unsigned":
                value = value.view(torch.int16)
            self.assert_same_bits(segment[key].value(), value, name)
        self.assert_same_bits(segment["mb0/forward/Unregistered/output.0"].value(),
                              saved["Unregistered"])
        self.assertEqual(trace.events(), {("not recorded", "known.sparse/output.0")})
        self.assertFalse(trace.rank()["degraded"])

    def test_a_complex_parameter_is_described_as_it_is_recorded(self):
        trace, saved = self.traced("spectrum")
        segment = trace.segment()
        for key, name in (("param/weight/value", "initial"), ("grad/weight/reduced", "gradient"),
                          ("step/weight/param", "stepped")):
            self.assert_same_bits(segment[key].value(), torch.view_as_real(saved[name]), key)
        described = trace.rank()["parameters"]["weight"]
        self.assertEqual((described["dtype"], described["shape"]), ("float32", [2, 2]))
        self.run_command([BUILD / "tools" / "ttrace-diff", trace.path, trace.path])  # it is readable, too

    def test_autocast_and_a_step_that_the_scaler_leaves_out(self):
        trace, saved = self.traced("autocast", "--iterations", "0-")
        self.assertEqual(trace.iterations(), [0, 1, 2])
        first, skipped, last = (trace.segment(iteration) for iteration in range(3))
        self.assertEqual(first["mb0/forward/a/output.0"].dtype, torch.bfloat16)
        self.assertEqual(first["mb0/backward/a/grad_output.0"].dtype, torch.bfloat16)
        # The scaler divides by 2, which is exact, before the optimizer steps.
        self.assert_same_bits(first["grad/a.weight/reduced"].value(), saved["scaled0"] / 2)
        self.assertEqual(skipped.keys("grad", "step"), set())
        self.assert_same_bits(last["param/a.weight/value"].value(), saved["stepped0"])

    def test_two_models_whose_optimizers_step_one_after_another(self):
        trace, _ = self.traced("adversaries", "--iterations", "0-")
        self.assertEqual(trace.iterations(), [0, 1, 2])
        segment = trace.segment(2)
        self.assertIn("mb0/forward/a/output.0", segment.keys())
        self.assertEqual(segment["mb0/forward/Sequential/input.0"].target.key,
                         "mb0/forward/b/output.0")
        slots = {row.slot for row in segment.rows if row.module == "Sequential.0.weight"}
        self.assertEqual(slots, {"value", "reduced", "clipped", "param", "momentum_buffer"})
        # The gradient of sum(W x) is the sum of the inputs; its absolute value is clipped at 0.5.
        inputs = segment["mb0/forward/Sequential/input.0"].value()
        reduced = segment["grad/Sequential.0.weight/reduced"].value()
        torch.testing.assert_close(reduced, inputs.sum(0, keepdim=True))
        self.assert_same_bits(segment["grad/Sequential.0.weight/clipped"].value(),
                              reduced.clamp(-0.5, 0.5))

    def test_compiled_regions_are_seen_from_outside(self):
        trace, _ = self.traced("compiled", "--iterations", "0-")
        self.assertEqual(trace.iterations(), [0, 1, 2])
        self.assertEqual(trace.events(), {("compiled", "b")})
        segment = trace.segment(2)
        for key in ("mb0/forward/b/input.0", "mb0/forward/b/output.0",
                    "mb0/backward/b/grad_output.0", "mb0/forward/a/output.0"):
            self.assertIn(key, segment.keys())
        self.assertNotIn("mb0/forward/b#1/output.0", segment.keys())
        self.assertIn("param/b.weight/value", segment.keys())
        self.assertEqual(self.done.stderr.count("UserWarning"), 0)

    def test_marks_pauses_and_own_records(self):
        trace, _ = self.traced("marked", "--iterations", "0-")
        self.assertEqual(trace.iterations(), [0, 1])
        segment = trace.segment(1)
        self.assertEqual({row.microbatch for row in segment.rows}, {-1, 0})
        total = segment["mb0/forward/@root/output.0"].value().sum()
        self.assert_same_bits(segment["mb0/forward/my_loss/output.value"].value(), total)
        first = trace.segment(0)
        torch.testing.assert_close(
            segment["param/b.bias/value"].value(), first["param/b.bias/value"].value() - 0.2)


if __name__ == "__main__":
    unittest.main()
