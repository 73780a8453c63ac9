#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real Megatron-Core on CPU, untouched: every layout gives the keys of one rank, and its values.

The script starts all layouts from the weights of the one-rank run, so that whatever is computed by
the same operations has the same bits. Pieces of tensors are put together by what was declared.
"""
import collections
import importlib.util
import sys
import unittest

import torch

from agent_runs import CAPTURE, SOURCE, CaptureTest, Trace, torchrun

SCRIPT = SOURCE / "samples" / "megatron" / "pretrain_gpt.py"
SMALL = ["--layers", "4", "--hidden", "32", "--heads", "4", "--seq", "16", "--vocab", "64",
         "--iters", "2"]


def merged(trace, iteration=0):
    """key -> {rank: row}"""
    found = collections.defaultdict(dict)
    for rank in trace.ranks:
        for row in trace.segment(iteration, rank).rows:
            found[row.key][rank] = row
    return found


@unittest.skipUnless(importlib.util.find_spec("megatron"), "megatron-core is not installed")
class Megatron(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.traced("one", 1)
        cls.one = cls.reference.segment()

    @classmethod
    def traced(cls, name, ranks, *arguments, model=(), options=()):
        launcher = [sys.executable] if ranks == 1 else torchrun(ranks)
        start = ["--init-from", cls.reference.path] if hasattr(cls, "reference") else []
        cls.done = cls.run_command([CAPTURE, "-o", cls.scratch / name, *start, *options, "--",
                                    *launcher, SCRIPT, *SMALL, *model, *arguments])
        return Trace(cls.scratch / name)

    def assert_same_keys(self, found):
        self.assertEqual(sorted(self.one.keys() ^ found.keys()), [])

    def assert_same_values(self, found, *phases, but=()):
        """All copies are the one rank's tensor."""
        compared = 0
        for key in self.one.keys(*phases):
            if key in but:
                continue
            for row in found[key].values():
                self.assert_same_bits(row.value(), self.one[key].value(), key)
                compared += 1
        self.assertGreater(compared, 100)

    def test_pipeline_stages_and_their_chunks_are_one_model(self):
        trace = self.traced("pp2-vpp2", 2, "--pp", "2", "--vpp", "2")
        found = merged(trace)
        self.assert_same_keys(found)
        self.assert_same_values(found, "param", "forward", "backward")
        # The embedding's gradient is summed over the stages that share it, in another order.
        tied = "grad/embedding.word_embeddings.weight/reduced"
        reduced = {key for key in self.one.keys("grad") if key.endswith("/reduced")} - {tied}
        for key in reduced:
            for row in found[key].values():
                self.assert_same_bits(row.value(), self.one[key].value(), key)
        self.assertEqual(len(found[tied]), 2)
        copies = [row.value() for row in found[tied].values()]
        self.assert_same_bits(copies[0], copies[1])
        raw = found["param/decoder.layers.2.mlp.linear_fc1.weight/value"][0].raw_name
        self.assertEqual(raw, "module.decoder.layers.0.mlp.linear_fc1.weight")
        axes = {axis["name"]: (axis["coord"], axis["size"]) for axis in trace.rank(1)["axes"]}
        self.assertEqual((axes["pp"], axes["tp"]), ((1, 2), (0, 1)))

    def test_recomputed_layers_have_the_gradients_of_their_own_micro_batches(self):
        found = merged(self.traced("pp2-recompute", 2, "--pp", "2", "--recompute"))
        self.assert_same_keys(found)
        self.assert_same_values(found, "forward", "backward")

    def test_tensor_parallel_parts_are_declared(self):
        trace = self.traced("tp2-sp", 2, "--tp", "2", "--sp")
        found = merged(trace)
        self.assert_same_keys(found)
        for key in self.one.keys("param"):
            rows = [found[key][rank] for rank in trace.ranks]
            cuts = rows[0].layout["dims"].split()
            self.assertEqual(tuple(rows[0].layout["shape"]), self.one[key].shape, key)
            whole = rows[0].value()
            if "[tp]" in cuts:
                whole = torch.cat([row.value() for row in rows], cuts.index("[tp]"))
            self.assert_same_bits(whole, self.one[key].value(), key)

    def test_the_distributed_optimizer_keeps_flat_pieces(self):
        trace = self.traced("dp2-zero", 2, "--dp", "2", "--distributed-optimizer", "--bf16")
        found = merged(trace)
        pieces = 0
        for key in self.one.keys("grad"):
            if not key.endswith("/reduced"):
                continue
            parameter = self.one[key.replace("grad/", "param/").replace("reduced", "value")]
            whole = torch.full((parameter.value().numel(),), float("nan"))
            for row in found[key].values():
                flat = row.layout["flat"]
                self.assertEqual(tuple(flat["shape"]), parameter.shape)
                self.assertEqual(row.shape, (flat["count"],))
                part = whole[flat["start"]:flat["start"] + flat["count"]]
                self.assertTrue(part.isnan().all(), f"{key}: pieces overlap")
                part.copy_(row.value())
                pieces += 1
            self.assertFalse(whole.isnan().any(), f"{key}: a piece is missing")
        self.assertGreater(pieces, len(self.one.keys("param")))
        self.assert_masters_are_the_parameters(found)

    def assert_masters_are_the_parameters(self, found):
        """bf16 parameters after the step are the rounded masters, which are flat pieces, too."""
        masters = [key for key in found if key.startswith("step/") and key.endswith("/master")]
        self.assertEqual(len(masters), len(self.one.keys("param")))
        for key in masters:
            for rank, row in found[key].items():
                flat = row.layout["flat"]
                parameter = found[key.replace("/master", "/param")][rank].value().flatten()
                part = parameter[flat["start"]:flat["start"] + flat["count"]]
                self.assert_same_bits(row.value().bfloat16(), part, key)
                self.assertEqual(row.dtype, torch.float32)

    def test_masters_follow_the_initial_parameters(self):
        """Otherwise the first step would go back to the weights of the program's own seed."""
        found = merged(self.traced("bf16", 1, "--bf16", "--seed", "99"))
        for key in (key for key in self.one.keys("param") if key.endswith("weight/value")):
            start = self.one[key].value()
            self.assert_same_bits(found[key][0].value(), start.bfloat16(), key)
            master = found[key.replace("param/", "step/").replace("value", "master")][0].value()
            # Adam's first step moves no element further than the learning rate (and its rounding).
            self.assertLess((master - start.bfloat16().float()).abs().max().item(), 1.1e-3, key)

    def test_the_reported_norm_is_that_of_the_gradients(self):
        total = sum(self.one[key].value().double().square().sum()
                    for key in self.one.keys("grad") if key.endswith("/reduced"))
        norm = self.one["grad/@root/norm"].value()
        self.assertEqual(norm.dtype, torch.float64)
        self.assertAlmostEqual((norm / total.sqrt()).item(), 1.0, delta=1e-6)
        for key in (key for key in self.one.keys("grad") if key.endswith("/clipped")):
            reduced = self.one[key.replace("clipped", "reduced")].value()
            factor = min(1.0, 1.0 / (norm.item() + 1e-6))
            torch.testing.assert_close(self.one[key].value(), reduced * factor)

    def test_experts_count_globally(self):
        model = ["--experts", "4"]
        one = self.capture_other("moe", 1, model)
        two = self.capture_other("moe-ep2", 2, [*model, "--ep", "2"])
        layer = "decoder.layers.1.mlp.experts.local_experts"
        for expert in range(4):
            key = f"param/{layer}.{expert}.linear_fc1.weight/value"
            self.assertIn(key, merged(one))
            rows = merged(two)[key]
            self.assertEqual(list(rows), [expert // 2])
            self.assertEqual(rows[expert // 2].raw_name,
                             f"module.{layer}.{expert % 2}.linear_fc1.weight")

    def capture_other(self, name, ranks, arguments):
        launcher = [sys.executable] if ranks == 1 else torchrun(ranks)
        self.run_command([CAPTURE, "-o", self.scratch / name, "--filter", "param/*", "--",
                          *launcher, SCRIPT, *SMALL, *arguments])
        return Trace(self.scratch / name)

    def test_the_run_is_the_same_with_and_without_capture(self):
        traced = self.traced_lines("again", True)
        self.assertEqual(traced, self.traced_lines("alone", False))
        self.assertEqual(len(traced), 2)

    def traced_lines(self, name, captured):
        capture = [CAPTURE, "-o", self.scratch / name, "--iterations", "0-", "--"]
        done = self.run_command([*(capture if captured else []), *torchrun(2), SCRIPT, *SMALL,
                                 "--tp", "2"])
        return [line for line in done.stdout.splitlines() if line.startswith("iteration")]


if __name__ == "__main__":
    unittest.main()
