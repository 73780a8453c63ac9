#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ttrace-capture's options make the agent record, and leave out."""
import unittest

import h5py
import torch

from agent_runs import ROOT_INPUT, CaptureTest

TOKENS = ("@root/input.0", "CrossEntropyLoss/input.1")  # the integers that the program feeds in


class Options(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = cls.traced("plain").segment()

    @classmethod
    def traced(cls, name, *options):
        trace, cls.done = cls.capture(name, "plain.py", options=options)
        return trace

    def test_iterations_may_lie_apart(self):
        trace = self.traced("apart", "--iterations", "0,2")
        self.assertEqual(trace.iterations(), [0, 2])
        self.assertEqual(trace.segment(2).keys(), self.plain.keys())
        self.assertEqual(trace.segment(0).keys(), self.plain.keys())

    def test_a_later_iteration_alone_starts_where_the_former_ended(self):
        later = self.traced("later", "--iterations", "1-").segment(1)
        before = self.plain["step/norm.weight/param"].value()
        self.assert_same_bits(later["param/norm.weight/value"].value(), before)

    def test_filters_leave_integer_root_inputs_in(self):
        segment = self.traced("filtered", "--filter", "blocks.*", "--filter", "!*down*",
                              "--filter", "!step/*").segment()
        modules = {row.module for row in segment.rows}
        self.assertLess({"blocks.0", "blocks.1.up", "blocks.0.act"}, modules)
        self.assertFalse([name for name in modules if "down" in name or name.startswith("norm")])
        self.assertEqual(segment.keys("step"), set())
        others = {row.key for row in segment.rows if not row.module.startswith("blocks")}
        self.assertEqual(others, {f"mb{m}/forward/{key}" for m in (0, 1) for key in TOKENS})
        # What the modules in view are called with is no output in view: so its gradient is wanted.
        more = {f"mb{m}/backward/blocks.{block}/grad_input.0" for m in (0, 1) for block in (0, 1)}
        self.assertLessEqual(segment.keys() - self.plain.keys(), more)
        for key in segment.keys() - more:
            self.assert_same_bits(segment[key].value(), self.plain[key].value(), key)

    def test_stats_and_hashes_keep_no_bytes_but_those_of_integer_root_inputs(self):
        for kind in ("stats", "hash"):
            segment = self.traced(kind, "--what", kind).segment()
            self.assertEqual(segment.keys(), self.plain.keys())
            for row in segment.rows:
                held = row.target  # tokens that a module hands on are those of the root
                exact = held.flags & ROOT_INPUT and held.dtype == torch.int64
                self.assertEqual(held.kind, "full" if exact else kind, row.key)
                self.assertEqual(held.hash, self.plain[row.key].target.hash, row.key)
            with h5py.File(segment.path) as file:
                kept = {row.key for row in segment.rows if f"data/{row.key}" in file}
            self.assertEqual(kept, {f"mb{m}/forward/{key}" for m in (0, 1) for key in TOKENS})

    def test_all_adds_masks_and_indices(self):
        segment = self.traced("all", "--what", "all").segment()
        self.assertGreaterEqual(segment.keys(), self.plain.keys())

    def test_an_estimate_records_nothing_and_is_what_a_trace_would_hold(self):
        trace = self.traced("estimate", "--estimate")
        self.assertEqual(trace.iterations(), [])
        sizes = {}
        for row in self.plain.rows:
            sizes[row.phase] = sizes.get(row.phase, 0) + (row.bytes if row.alias_of < 0 else 0)
        self.assertEqual(trace.rank()["estimate_bytes"], sizes)
        self.assertIn("forward", self.done.stdout)

    def test_ranks_that_do_not_exist_are_nothing_captured(self):
        trace, done = self.capture("ranks", "plain.py", options=["--ranks", "3"], expected=2)
        self.assertEqual(trace.ranks, [])
        self.assertIn("nothing was captured", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
