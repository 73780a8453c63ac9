#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: DDP, DTensor tensor parallelism, FSDP2, pipeline stages, a cut made by hand."""
import unittest

import torch

from agent_runs import ROOT_INPUT, CaptureTest, torchrun


class TwoRanks(CaptureTest):
    def traced(self, mode, **how):
        trace, self.done = self.capture(mode, "parallel.py", mode, f"{mode}.pt", ranks=2,
                                        options=["--iterations", "0-1"], **how)
        saved = [torch.load(self.scratch / f"{mode}.pt.{rank}") for rank in range(2)]
        self.assertEqual(trace.ranks, [0, 1])
        return trace, saved

    def assert_values(self, trace, saved):
        """Outputs and reduced gradients of each rank are those that it saved."""
        for rank in range(2):
            self.assertEqual(trace.rank(rank)["world_size"], 2)
            self.assertEqual(trace.events(rank), set())
            for iteration in range(2):
                segment = trace.segment(iteration, rank)
                for microbatch in range(2):
                    value = segment[f"mb{microbatch}/forward/@root/output.0"].value()
                    self.assert_same_bits(value, saved[rank][f"output{iteration}{microbatch}"])
                for key, gradient in saved[rank].items():
                    number, _, name = key.partition(" ")
                    if number == f"grad{iteration}":
                        name = name.removeprefix("module.")
                        value = segment[f"grad/{name}/reduced"].value()
                        self.assert_same_bits(value, gradient, key)

    def axes(self, trace, rank):
        return trace.rank(rank)["axes"]

    def test_ddp_under_torchrun(self):
        trace, saved = self.traced("ddp", launcher=torchrun(2))
        self.assert_values(trace, saved)
        self.assertEqual(self.axes(trace, 1), [{"name": "dp", "size": 2, "coord": 1}])
        self.assertFalse(trace.rank(1)["axes_guessed"])
        self.assertIn([0, 1], trace.rank()["groups"].values())
        first = trace.segment(0, 0)
        row = first["mb0/forward/@root/input.0"]
        self.assertEqual((row.flags, row.raw_name), (ROOT_INPUT, "module"))
        self.assertEqual(first["param/up.weight/value"].raw_name, "module.up.weight")
        self.assertNotIn("mb0/forward/@root#1/output.0", first.keys())

    def test_tensor_parallel_dtensors_declare_their_cuts(self):
        trace, saved = self.traced("tp")
        self.assert_values(trace, saved)
        self.assertEqual(self.axes(trace, 1), [{"name": "tp", "size": 2, "coord": 1,
                                                "kind": "tensor"}])
        self.assertFalse(trace.rank(1)["axes_guessed"])
        for rank in range(2):
            segment = trace.segment(0, rank)
            layouts = {key: segment[key].layout for key in (
                "param/up.weight/value", "param/down.weight/value", "step/down.weight/exp_avg",
                "mb0/forward/up/output.0", "mb0/backward/up/grad_output.0",
                "mb0/forward/down/output.0", "mb0/forward/embedding/output.0")}
            self.assertEqual({key: layout["dims"] for key, layout in layouts.items()}, {
                "param/up.weight/value": "[tp] -",
                "param/down.weight/value": "- [tp]",
                "step/down.weight/exp_avg": "- [tp]",
                "mb0/forward/up/output.0": "- - [tp]",
                "mb0/backward/up/grad_output.0": "- - [tp]",
                "mb0/forward/down/output.0": "- - - partial(tp)",
                "mb0/forward/embedding/output.0": "- - - partial(tp)"})
            self.assertEqual(layouts["param/up.weight/value"]["shape"], [12, 8])
            self.assertEqual(segment["param/up.weight/value"].shape, (6, 8))
            parameters = trace.rank(rank)["parameters"]
            self.assertEqual(parameters["up.weight"]["layout"]["dims"], "[tp] -")
        # What is declared a sum adds up to what the next module got; the mask of the sharded
        # embedding is part of that.
        parts = [trace.segment(0, rank)["mb0/forward/embedding/output.0"].value()
                 for rank in range(2)]
        whole = trace.segment(0, 0)["mb0/forward/up/input.0"].value()
        self.assert_same_bits(parts[0] + parts[1], whole)

    def test_fsdp2(self):
        trace, saved = self.traced("fsdp")
        self.assert_values(trace, saved)
        self.assertEqual(self.axes(trace, 0), [{"name": "dp", "size": 2, "coord": 0,
                                                "kind": "data"}])
        segment = trace.segment(0, 1)
        for key in ("param/up.weight/value", "grad/up.weight/reduced", "step/up.weight/exp_avg"):
            self.assertEqual(segment[key].layout["dims"], "[dp] -", key)
            self.assertEqual(segment[key].shape, (6, 8), key)
        self.assertEqual(trace.rank()["modules"]["@root"]["class"], "Model")

    def test_a_sum_made_in_place_is_no_alias_of_its_parts(self):
        trace, saved = self.traced("manual")
        segments = [trace.segment(0, rank) for rank in range(2)]
        parts = [segment["mb0/forward/down.partial/output.0"].value() for segment in segments]
        for segment in segments:
            row = segment["mb0/forward/down/output.0"]
            self.assertEqual(row.alias_of, -1)
            self.assert_same_bits(row.value(), parts[0] + parts[1])
        self.assertEqual(self.axes(trace, 1), [{"name": "rank", "size": 2, "coord": 1}])
        self.assertTrue(trace.rank(1)["axes_guessed"])

    def test_only_the_wanted_rank(self):
        trace, _ = self.capture("rank1", "parallel.py", "ddp", "rank1.pt", ranks=2,
                                options=["--ranks", "1"])
        self.assertEqual(trace.ranks, [1])

    def test_a_pipeline_stage_that_rehearses_shapes_is_no_micro_batch(self):
        trace, _ = self.capture("pipelined", "pipelined.py", ranks=2)
        for rank in range(2):
            segment = trace.segment(0, rank)
            self.assertEqual({row.microbatch for row in segment.rows}, {-1, 0, 1})
            self.assertIn("mb1/backward/@root/grad_output.0", segment.keys())
        tokens = torch.arange(8).view(4, 2)
        for microbatch in range(2):
            key = f"mb{microbatch}/forward/@root/input.0"
            self.assert_same_bits(trace.segment(0, 0)[key].value(),
                                  tokens[2 * microbatch:2 * microbatch + 2])


class Kinds(CaptureTest):
    """What axes are for follows from who shards over them, whatever they are called."""

    def kinds(self, mode, ranks):
        trace, _ = self.capture(mode, "meshes.py", mode, ranks=ranks)
        told = [{axis["name"]: axis.get("kind") for axis in trace.rank(rank)["axes"]}
                for rank in range(ranks)]
        self.assertEqual(told, told[:1] * ranks)
        self.assertEqual(trace.events(), set())
        return told[0]

    def test_fully_shard_without_a_mesh(self):
        self.assertEqual(self.kinds("default", 2), {"mesh0": "data"})

    def test_hybrid_shards(self):
        self.assertEqual(self.kinds("hybrid", 4), {"a": "data", "b": "data"})

    def test_tensor_parallel_inside_fully_shard(self):
        self.assertEqual(self.kinds("plan", 4), {"a": "data", "b": "tensor"})

    def test_a_ddp_over_some_ranks(self):
        self.assertEqual(self.kinds("groups", 4), {"stride2": "data", "stride1": None})

    def test_of_other_plans_nothing_is_known(self):
        self.assertEqual(self.kinds("experts", 2), {"mesh0": None})


if __name__ == "__main__":
    unittest.main()
