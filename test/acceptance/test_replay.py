# SPDX-License-Identifier: Apache-2.0
"""Runs that are fed with another run's tensors: bit-equal to themselves, healthy layouts the same,
bugs named where they are, whichever side is fed."""
import unittest

import h5py
import numpy

from runs import SOURCE, TOOLS, Runs, launcher, run

MEGATRON = SOURCE / "samples/megatron/pretrain_gpt.py"
TORCH = SOURCE / "samples/torch/train.py"
HANDWRITTEN = SOURCE / "samples/handwritten/train.py"
LLAMA = ["--swiglu", "--rope", "--rmsnorm", "--kv-heads", "2"]


class Replay(Runs):
    """Two iterations each: the second starts from what the first made of its gradients."""

    def trace(self, name, program, arguments, ranks=1, options=()):
        if not (self.traces / name).exists():
            self.capture(name, launcher(program, [*arguments, "--iters", "2"], ranks),
                         ["--iterations", "0-1", *options])
        return self.traces / name

    def pack(self, source, *words):
        path = self.traces / f"{source.name}{len(words)}.pack"
        run([TOOLS / "ttrace-merge", "-q", source, "--pack", *words, "-o", path])
        return path

    def fed(self, name, program, arguments, pack, ranks=1):
        self.capture(name, launcher(program, [*arguments, "--iters", "2"], ranks),
                     ["--replay", pack])
        return name

    def check_bit_equal(self, name, program, arguments):
        reference = self.trace(name, program, arguments)
        self.fed(f"{name}-own", program, arguments, self.pack(reference, "--like", reference))
        report = self.diff(f"{name}-own", name, expected=0)
        self.check_same(report)
        self.assertEqual((report["mode"], report["iterations"]), ("local", [0, 1]))
        unequal = [line["key"] for line in report["tensors"] if not line["bit_equal"]]
        self.assertEqual(unequal, [])

    def test_each_sample_computes_every_bit_again(self):
        cases = {"torch": (TORCH, ["--micro-batch-size", "2"]),
                 "torch-bf16": (TORCH, ["--bf16", "--checkpoint", "non-reentrant"]),
                 "gpt": (MEGATRON, ["--recompute"]),
                 "llama-bf16": (MEGATRON, [*LLAMA, "--bf16"]),
                 "moe": (MEGATRON, ["--experts", "4"]),
                 "handwritten": (HANDWRITTEN, [])}
        for name, (program, arguments) in cases.items():
            with self.subTest(name):
                self.check_bit_equal(name, program, arguments)

    def test_a_healthy_layout_is_the_same_and_a_small_bug_is_not(self):
        """The reference is fed, in both precisions."""
        model = ["--bf16"]
        reference = self.trace("ref", MEGATRON, model)
        layout = ["--tp", "2", "--pp", "2", "--sp"]
        candidate = self.trace("cand", MEGATRON, model + layout, 4, ["--init-from", reference])
        pack = self.pack(candidate, "--like", reference)
        own, high = (self.fed(name, MEGATRON, flags, pack)
                     for name, flags in (("own", model), ("high", [])))
        self.check_same(self.diff(own, "cand", expected=0))
        report = self.diff(own, "cand", expected=0, options=["--high", self.traces / high])
        self.check_same(report)
        self.assertTrue(all(line["resolution"] for line in report["tensors"]))

        wrong = self.trace("wrong", MEGATRON, [*model, *layout, "--bug", "fc2-factor", "--bug-layer",
                                               "3", "--bug-size", "9"], 4,
                           ["--init-from", reference])
        pack = self.pack(wrong, "--like", reference)
        own, high = (self.fed(f"{name}-wrong", MEGATRON, flags, pack)
                     for name, flags in (("own", model), ("high", [])))
        # 1 + 2^-9 is a quarter of a unit of bfloat16, and far below what shows end to end.
        self.diff("ref", "wrong", expected=0)
        report = self.diff(own, "wrong", expected=1, options=["--high", self.traces / high])
        self.check_first(report, {"module": "decoder.layers.3.mlp.linear_fc2", "slot": "output.0",
                                  "phase": "forward"})

    def test_layouts_that_nothing_declares_are_packed_by_content(self):
        """Eight ranks that cut by hand, with addends between modules and layers counted by stage."""
        self.trace("hand", HANDWRITTEN, [])
        layout = ["--pp", "2", "--dp", "2", "--tp", "2"]
        self.trace("hand-cut", HANDWRITTEN, layout, 8)
        pack = self.pack(self.traces / "hand-cut", "--like", self.traces / "hand")
        own = self.fed("hand-own", HANDWRITTEN, [], pack)
        self.check_same(self.diff(own, "hand-cut", expected=0))

    def test_packed_documents_are_fed_in_both_directions(self):
        model = ["--packed"]
        layout = [*model, "--cp", "2", "--zigzag"]
        reference = self.trace("packed", HANDWRITTEN, model)
        candidate = self.trace("packed-cut", HANDWRITTEN, layout, 2)
        own = self.fed("packed-own", HANDWRITTEN, model, self.pack(candidate, "--like", reference))
        self.check_same(self.diff(own, "packed-cut", expected=0))
        self.fed("packed-fed", HANDWRITTEN, layout,
                 self.pack(reference, "--reshard-like", candidate), 2)
        report = self.diff("packed", "packed-fed", expected=0)
        self.check_same(report)
        self.assertEqual(report["mode"], "local")

        wrong = self.trace("packed-wrong", HANDWRITTEN, [*layout, "--bug", "packed-mask"], 2)
        own = self.fed("packed-wrong-own", HANDWRITTEN, model,
                       self.pack(wrong, "--like", reference))
        self.check_first(self.diff(own, "packed-wrong", expected=1),
                         {"module": "blocks.0.core", "phase": "forward", "slot": "output.0"})

    def test_near_ties_of_a_router_are_decided_by_its_own_logits(self):
        """Another order of summation sends tokens to other experts. That is no bug."""
        program, model = SOURCE / "test/capture/programs/tied_router.py", ["--experts", "4"]
        reference = self.trace("tied", program, model)
        candidate = self.trace("other-order", program, [*model, "--other-order"], 1,
                               ["--init-from", reference])
        router = "data/mb0/forward/decoder.layers.0.mlp.router"
        (ours, _), (theirs, logits) = (self.routing(path, router) for path in (reference, candidate))
        moved = numpy.flatnonzero((ours != theirs).any(axis=1))
        self.assertGreater(len(moved), 0)  # or nothing is tried here
        tied = abs(logits[moved, 1] - logits[moved, 2]) / abs(logits[moved]).max(axis=1)
        self.assertLess(tied.max(), 1e-5)
        self.diff("tied", "other-order", expected=1)

        pack = self.pack(candidate, "--like", reference)
        own, high = (self.fed(f"tied-{name}", program, [*model, *flags], pack)
                     for name, flags in (("own", []), ("high", ["--fp64"])))
        self.check_same(self.diff(own, "other-order", expected=0))
        self.check_same(self.diff(own, "other-order", expected=0,
                                  options=["--high", self.traces / high]))

    def routing(self, trace, router):
        """Which experts each token goes to, and its logits."""
        with h5py.File(trace / "rank00000/it000000.h5") as file:
            logits = file[f"{router}/output.logits"][()]
            return file[f"{router}/output.1"][()], logits.reshape(-1, logits.shape[-1])

    def test_the_run_in_doubt_is_fed_with_the_reference(self):
        """Each of its modules then computes from the right inputs, cut as its layout has it."""
        reference = self.trace("ref", MEGATRON, ["--bf16"])
        layout = ["--bf16", "--tp", "2", "--pp", "2", "--sp"]
        candidate = self.trace("cand", MEGATRON, layout, 4, ["--init-from", reference])
        pack = self.pack(reference, "--reshard-like", candidate)
        self.fed("fed", MEGATRON, layout, pack, 4)
        self.check_same(self.diff("ref", "fed", expected=0))

        wrong = [*layout, "--bug", "attention-scale", "--bug-layer", "3"]
        self.fed("fed-wrong", MEGATRON, wrong, pack, 4)
        report = self.diff("ref", "fed-wrong", expected=1)
        self.check_first(report, {"module": "decoder.layers.3.self_attention.core_attention"
                                            ".scale_mask_softmax", "phase": "forward"})

    def test_a_tensor_that_modules_hand_on_is_one_tensor(self):
        program = SOURCE / "test/acceptance/programs/passed_on.py"
        for name, ranks in (("one", 1), ("sharded", 2)):
            self.capture(name, launcher(program, [], ranks))
        for name in ("one", "sharded"):  # itself, then wrapped by FSDP
            with self.subTest(name):
                pack = self.pack(self.traces / name, "--like", self.traces / "one")
                self.capture(f"fed by {name}", launcher(program, [], 1), ["--replay", pack])
                self.check_same(self.diff(f"fed by {name}", name, expected=0))

    def test_a_replay_of_another_run_is_refused(self):
        reference = self.trace("torch", TORCH, ["--micro-batch-size", "2"])
        other = self.trace("torch-other", TORCH, ["--micro-batch-size", "2", "--seed", "5"])
        pack = self.traces / "other.pack"  # 1: the data are others
        run([TOOLS / "ttrace-merge", "-q", other, "--pack", "--like", reference, "-o", pack], 1)
        self.fed("of-other", TORCH, ["--micro-batch-size", "2"], pack)
        done = run([TOOLS / "ttrace-diff", self.traces / "of-other", reference], expected=2)
        self.assertIn("replay of another run", done.stderr)


if __name__ == "__main__":
    unittest.main()
