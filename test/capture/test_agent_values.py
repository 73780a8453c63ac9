#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the agent records of a plain PyTorch program is what the program computed, bit for bit."""
import sys
import unittest

import torch

from agent_runs import GLUE, PROGRAMS, ROOT_INPUT, TRAINABLE, CaptureTest


class PlainValues(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace, cls.done = cls.capture("plain", "plain.py", "plain.pt.0",
                                          options=["--iterations", "0-1"])
        cls.truth = torch.load(cls.scratch / "plain.pt.0")
        cls.segments = [cls.trace.segment(iteration) for iteration in cls.trace.iterations()]
        cls.first = cls.segments[0]

    def test_only_the_wanted_iterations_have_segments(self):
        self.assertEqual(self.trace.iterations(), [0, 1])
        self.assertTrue(all(segment.complete for segment in self.segments))

    def test_every_value_that_the_program_saved_is_recorded_bit_for_bit(self):
        self.assertGreater(self.assert_saved_values(self.trace), 200)

    def test_nothing_else_is_recorded_but_inputs_and_the_loss(self):
        for segment in self.segments:
            expected = {key.split("/", 1)[1] for key in self.truth
                        if key.startswith(f"it{segment.iteration}/")}
            extra = {key for key in segment.keys() - expected
                     if "/input." not in key and "CrossEntropyLoss" not in key}
            # The norm is called with a sum that no module returned: its gradient is no output's.
            self.assertEqual(extra, {f"mb{number}/backward/norm/grad_input.0"
                                     for number in (0, 1)})

    def test_evaluation_passes_are_neither_recorded_nor_counted(self):
        microbatches = {row.microbatch for segment in self.segments for row in segment.rows}
        self.assertEqual(microbatches, {-1, 0, 1})

    def test_a_module_that_is_called_twice_has_numbered_calls(self):
        self.assertIn("mb0/forward/norm/output.0", self.first.keys())
        self.assertIn("mb0/forward/norm#1/output.0", self.first.keys())
        self.assertNotIn("mb0/forward/norm#2/output.0", self.first.keys())

    def test_a_tied_weight_has_its_first_name(self):
        names = {row.module for row in self.first.rows if row.phase == "param"}
        self.assertIn("embedding.weight", names)
        self.assertNotIn("head.weight", names)

    def test_inputs_are_aliases_of_the_outputs_they_were(self):
        row = self.first["mb0/forward/blocks.0.act/input.0"]
        self.assertEqual(row.target.key, "mb0/forward/blocks.0.up/output.0")
        row = self.first["mb0/forward/blocks.1/input.0"]
        self.assertEqual(row.target.key, "mb0/forward/blocks.0/output.0")
        self.assertEqual(row.flags, 0)

    def test_an_input_changed_in_place_after_its_record_keeps_its_value(self):
        before = self.first["mb0/forward/blocks.0.up/output.0"].value()
        after = self.first["mb0/forward/blocks.0.act/output.0"].value()
        self.assertTrue((before < 0).any())
        self.assertTrue(torch.equal(before.clamp(min=0), after))

    def test_floating_inputs_that_no_module_returned_are_glue(self):
        row = self.first["mb0/forward/norm/input.0"]
        self.assertEqual((row.flags, row.alias_of), (GLUE, -1))
        total = self.truth["it0/mb0/forward/embedding/output.0"] + 0.25
        self.assert_same_bits(row.value(), total)

    def test_integer_glue_is_left_out_and_integer_outputs_are_not(self):
        self.assertIn("mb0/forward/@root/output.hidden.1", self.first.keys())
        self.assertEqual(self.first["mb0/forward/@root/output.hidden.1"].dtype, torch.bool)

    def test_root_inputs_are_marked_positional_and_by_name(self):
        for slot in ("input.0", "input.mask"):
            row = self.first[f"mb1/forward/@root/{slot}"]
            self.assertEqual((row.flags, row.alias_of), (ROOT_INPUT, -1), slot)
        self.assertEqual(self.first["mb1/forward/@root/input.0"].dtype, torch.int64)

    def test_keyword_inputs_of_inner_modules_are_recorded(self):
        row = self.first["mb0/forward/blocks.0/input.scale"]
        self.assertEqual(row.target.key, "mb0/forward/@root/input.mask")

    def test_the_loss_module_belongs_to_the_micro_batch_it_was_called_in(self):
        row = self.first["mb1/forward/CrossEntropyLoss/input.1"]
        self.assertEqual(row.flags, ROOT_INPUT)
        self.assertIn("mb1/backward/CrossEntropyLoss/grad_output.0", self.first.keys())

    def test_trainable_parameters_are_marked(self):
        self.assertEqual(self.first["param/embedding.weight/value"].flags, TRAINABLE)
        self.assertEqual(self.first["param/offset/value"].flags, 0)
        self.assertNotIn("step/offset/param", self.first.keys())

    def test_the_tables_list_all_modules_and_parameters(self):
        rank = self.trace.rank()
        modules = rank["modules"]
        self.assertEqual(modules["blocks"]["class"], "ModuleList")
        self.assertFalse(modules["blocks"]["expected"])
        self.assertEqual(modules["blocks"]["calls"], 0)
        self.assertTrue(modules["norm"]["expected"] and modules["norm"]["returned_tensor"])
        self.assertEqual(modules["norm"]["calls"], 8)  # twice a micro-batch, two iterations
        self.assertRegex(modules["norm"]["forward"], r"^torch/nn/modules/normalization\.py:\d+$")
        self.assertRegex(modules["@root"]["forward"], r"plain\.py:\d+$")
        self.assertEqual(rank["parameters"]["offset"],
                         {"shape": [8], "dtype": "float32", "trainable": False})
        self.assertFalse(rank.get("degraded"))
        self.assertEqual(rank.get("events", []), [])

    def test_the_run_is_the_same_with_and_without_capture(self):
        alone = self.run_command([sys.executable, PROGRAMS / "plain.py"])
        self.assertEqual(self.done.stdout, alone.stdout)
        self.assertEqual(len(alone.stdout.splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
