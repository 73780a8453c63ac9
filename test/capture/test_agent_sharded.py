#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters, gradients and states of which each rank keeps pieces, against one rank that has all.

Pieces are put together by NumPy, as docs/layouts.md says.
"""
import importlib.util
import math
import unittest

import numpy

from agent_runs import CaptureTest, torchrun

STATES = ("grad/{}/reduced", "grad/{}/clipped", "step/{}/param", "step/{}/exp_avg",
          "step/{}/exp_avg_sq")


class Sharded(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.single, _ = cls.capture("single", "sharded.py", "single",
                                    options=["--iterations", "0-1"])
        cls.names = sorted(row.module for row in cls.single.segment().rows if row.phase == "param")
        assert len(cls.names) == 8

    def traced(self, mode, ranks, options=(), **how):
        trace, _ = self.capture(mode, "sharded.py", mode, ranks=ranks, options=[
            "--iterations", "0-1", "--init-from", self.single.path, *options], **how)
        for rank in range(ranks):
            self.assertEqual(trace.events(rank), set())
        return trace

    def put_together(self, trace, key, iteration=0, copies=1):
        """(the whole tensor, how many ranks hold some of it); fails where elements are missing."""
        whole, holders = None, 0
        for rank in trace.ranks:
            row = trace.segment(iteration, rank).by_key.get(key)
            if row is None:
                continue
            flat = row.layout["flat"]
            if whole is None:
                whole = numpy.full(math.prod(flat["shape"]), numpy.nan, dtype=numpy.float32)
                held = numpy.zeros(whole.size, dtype=int)
                shape = flat["shape"]
            self.assertEqual(flat["shape"], shape, key)
            self.assertEqual(row.layout["dims"], " ".join("-" * len(shape)), key)
            self.assertEqual(row.shape, (flat["count"],), key)
            place = slice(flat["start"], flat["start"] + flat["count"])
            whole[place] = row.value().numpy()
            held[place] += 1
            holders += flat["count"] > 0
        self.assertTrue((held == copies).all(), f"{key}: {held}")
        return whole.reshape(shape), holders

    def assert_pieces(self, trace, copies=1):
        """All of both iterations; the first starts from the very bits of the single rank."""
        spread = set()
        for name in self.names:
            start, holders = self.put_together(trace, f"param/{name}/value", copies=copies)
            numpy.testing.assert_array_equal(
                start, self.single.segment()[f"param/{name}/value"].value().numpy(), name)
            spread.add(holders // copies)
            for iteration in range(2):
                for state in (text.format(name) for text in STATES):
                    found, _ = self.put_together(trace, state, iteration, copies)
                    expected = self.single.segment(iteration)[state].value().numpy()
                    numpy.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-7,
                                                  err_msg=state)
        return spread

    def assert_norms(self, trace):
        for iteration in range(2):
            expected = self.single.segment(iteration)["grad/@root/norm"].value().item()
            for rank in trace.ranks:
                norm = trace.segment(iteration, rank)["grad/@root/norm"].value().item()
                self.assertAlmostEqual(norm / expected, 1.0, delta=1e-5)

    def test_fsdp1_declares_its_pieces(self):
        trace = self.traced("fsdp1", 3)
        # Some parameters are cut, others lie on one rank while the other two have no element.
        self.assertLess({1, 2}, self.assert_pieces(trace) | {3})
        self.assert_norms(trace)
        self.assertEqual(trace.rank(2)["axes"], [{"name": "dp", "size": 3, "coord": 2}])
        self.assertEqual(trace.segment(0, 1)["param/body.0.weight/value"].raw_name,
                         "_fsdp_wrapped_module.body._fsdp_wrapped_module.0.weight")

    def test_what_fsdp1_joins_is_recorded_as_its_parameters(self):
        trace = self.traced("joined", 3)
        self.assert_pieces(trace)
        self.assert_norms(trace)
        parameters = trace.rank(1)["parameters"]
        self.assertEqual(sorted(parameters), self.names)
        for name, row in parameters.items():
            self.assertEqual(row["shape"], [row["layout"]["flat"]["count"]], name)

    def test_hybrid_shards_are_held_twice(self):
        trace = self.traced("hybrid", 4)
        self.assert_pieces(trace, copies=2)
        self.assertEqual(trace.rank(1)["axes"], [
            {"name": "stride2", "size": 2, "coord": 0, "kind": "data"},
            {"name": "stride1", "size": 2, "coord": 1, "kind": "data"}])
        self.assertTrue(trace.rank(1)["axes_guessed"])

    def test_unsharded_parameters_of_fsdp1_are_whole(self):
        trace = self.traced("whole", 2)
        for name in self.names:
            for key in (f"param/{name}/value", f"grad/{name}/reduced", f"step/{name}/param"):
                row, expected = trace.segment(0, 1)[key], self.single.segment()[key]
                self.assertEqual((row.shape, row.layout), (expected.shape, None), key)
                numpy.testing.assert_allclose(row.value().numpy(), expected.value().numpy(),
                                              rtol=2e-4, atol=2e-7, err_msg=key)

    def test_zero_redundancy_states_lie_on_one_rank_each(self):
        trace = self.traced("zero", 3)
        segments = [trace.segment(1, rank) for rank in trace.ranks]
        owners = set()
        for name in self.names:
            key = f"step/{name}/exp_avg"
            holding = [rank for rank in trace.ranks if key in segments[rank].keys()]
            self.assertEqual(len(holding), 1, name)
            owners.update(holding)
            expected = self.single.segment(1)
            numpy.testing.assert_allclose(segments[holding[0]][key].value().numpy(),
                                          expected[key].value().numpy(), rtol=2e-4, atol=2e-7)
            for segment in segments:  # after they were sent round
                key = f"step/{name}/param"
                numpy.testing.assert_allclose(segment[key].value().numpy(),
                                              expected[key].value().numpy(), rtol=2e-4, atol=2e-7)
        self.assertEqual(owners, {0, 1, 2})

    def test_a_seed_draws_the_pieces_of_the_same_parameters(self):
        seeded, _ = self.capture("seeded", "sharded.py", "single",
                                 options=["--init-from", "seed:7"])
        for mode in ("fsdp1", "joined"):
            trace, _ = self.capture(f"seeded-{mode}", "sharded.py", mode, ranks=3,
                                    options=["--init-from", "seed:7", "--filter", "param/*"])
            for name in (name for name in self.names if name.endswith("weight")):
                found, _ = self.put_together(trace, f"param/{name}/value")
                expected = seeded.segment()[f"param/{name}/value"].value().numpy()
                numpy.testing.assert_array_equal(found, expected, name)

    @unittest.skipUnless(importlib.util.find_spec("deepspeed"), "DeepSpeed is not installed")
    def test_deepspeed_steps_pieces_of_whole_parameters(self):
        for mode in ("deepspeed1", "deepspeed2"):
            with self.subTest(mode):
                trace = self.traced(mode, 3, launcher=torchrun(3))
                self.assert_norms(trace)
                for iteration, name in ((i, name) for i in range(2) for name in self.names):
                    single = self.single.segment(iteration)
                    for key in (f"param/{name}/value", f"step/{name}/param"):
                        for rank in trace.ranks:
                            row = trace.segment(iteration, rank)[key]
                            numpy.testing.assert_allclose(
                                row.value().numpy(), single[key].value().numpy(), rtol=2e-4,
                                atol=2e-7, err_msg=key)
                    for key in (text.format(name) for text in STATES if "param" not in text):
                        found, _ = self.put_together(trace, key, iteration)
                        numpy.testing.assert_allclose(found, single[key].value().numpy(),
                                                      rtol=2e-4, atol=2e-7, err_msg=key)


if __name__ == "__main__":
    unittest.main()
