#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real Megatron-Core on CPU, untouched: every layout gives the keys of one rank, and its values.

The script starts all layouts from the weights of the one-rank run, so that whatever is computed by
the same operations has the same bits. Pieces of tensors are put together by what was declared.
"""
import collections
import importlib.util
import unittest

import torch

from agent_runs import SOURCE, CaptureTest, forked, torchrun

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
    def traced(cls, name, ranks, *arguments):
        """The sample, which starts with the weights of one rank."""
        start = ["--init-from", cls.reference.path] if hasattr(cls, "reference") else []
        return cls.capture(name, SCRIPT, *SMALL, *arguments, ranks=ranks, options=start)[0]

    def assert_same_keys(self, found):
        """A stage receives what no module of it returned, so it records that gradient as well."""
        odd = self.one.keys() ^ found.keys()
        self.assertEqual(sorted(key for key in odd if "/grad_input." not in key), [])
        self.assertEqual({key for key in odd if key in self.one.keys()}, set())

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
        """Layers are computed again in the backward pass, of which the trace shows nothing."""
        trace = self.traced("pp2", 2, "--pp", "2", "--vpp", "2", "--recompute")
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

    def test_experts_count_globally_and_capture_changes_nothing(self):
        experts = [SCRIPT, *SMALL, "--experts", "4", "--ep", "2"]
        trace, traced = self.capture("moe", *experts, ranks=2)
        found = merged(trace)
        layer = "decoder.layers.1.mlp.experts.local_experts"
        for expert in range(4):
            rows = found[f"param/{layer}.{expert}.linear_fc1.weight/value"]
            self.assertEqual(list(rows), [expert // 2])
            self.assertEqual(rows[expert // 2].raw_name,
                             f"module.{layer}.{expert % 2}.linear_fc1.weight")
        alone = self.run_command([*forked(2), *experts])
        lines = [[line for line in done.stdout.splitlines() if line.startswith("iteration")]
                 for done in (traced, alone)]
        self.assertEqual(lines[0], lines[1])
        self.assertEqual(len(lines[0]), 2)

    def test_every_value_of_a_tensor_parallel_run_is_recorded_bit_for_bit(self):
        for name, more, launcher in (("saved", [], forked(2)),
                                     ("saved-bf16", ["--bf16"], torchrun(2))):
            with self.subTest(name):
                trace, _ = self.capture(
                    name, "megatron_truth.py", SCRIPT.parent, f"{name}.pt", *SMALL, *more,
                    "--layers", "2", "--tp", "2", options=["--iterations", "0-"], launcher=launcher)
                self.assertEqual(trace.iterations(), [0, 1])
                for rank in range(2):
                    self.assertGreater(self.assert_saved_values(trace, rank), 500)


if __name__ == "__main__":
    unittest.main()
