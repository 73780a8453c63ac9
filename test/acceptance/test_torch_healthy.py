# SPDX-License-Identifier: Apache-2.0
"""Healthy plain PyTorch runs (DDP, FSDP, DTensor tensor parallelism) against one process: same."""
import unittest

from runs import SOURCE, Runs, launcher, torchrun

TRAIN = SOURCE / "samples/torch/train.py"
COMMON = ["--iters", "1", "--micro-batch-size", "2"]

# name: (ranks, arguments)
LAYOUTS = {
    "dp2": (2, ["--dp", "2"]),
    "tp2": (2, ["--tp", "2"]),
    "tp2-sp": (2, ["--tp", "2", "--sp"]),
    "fsdp2": (2, ["--dp", "2", "--fsdp"]),
    "fsdp1": (2, ["--dp", "2", "--fsdp1"]),
    "dp2-tp2": (4, ["--dp", "2", "--tp", "2"]),
    "dp2-tp2-sp-fsdp2": (4, ["--dp", "2", "--tp", "2", "--sp", "--fsdp"]),
    "checkpoint": (1, ["--checkpoint", "non-reentrant"]),
}


class TorchHealthy(Runs):
    def test_layouts_in_float32(self):
        self.capture("reference", torchrun(TRAIN, COMMON, 1))
        for name, (ranks, arguments) in LAYOUTS.items():
            with self.subTest(name):
                start = torchrun if name == "fsdp2" else launcher
                self.capture(name, start(TRAIN, COMMON + arguments, ranks),
                             ["--init-from", self.traces / "reference"])
                self.check_same(self.diff("reference", name, expected=0))

    def test_mixed_precision_of_fsdp(self):
        for sharding in ("--fsdp", "--fsdp1"):  # the reference is sharded over itself
            with self.subTest(sharding):
                mixed = COMMON + [sharding, "--mixed"]
                self.capture(f"one {sharding}", launcher(TRAIN, mixed, 1))
                self.capture(f"two {sharding}", launcher(TRAIN, mixed + ["--dp", "2"], 2),
                             ["--init-from", self.traces / f"one {sharding}"])
                self.check_same(self.diff(f"one {sharding}", f"two {sharding}", expected=0))

    def test_a_tensor_that_wrapped_blocks_hand_on(self):
        program = SOURCE / "test/acceptance/programs/passed_on.py"
        self.capture("one process", launcher(program, [], 1))
        self.capture("sharded", launcher(program, [], 2))
        report = self.diff("one process", "sharded", expected=0)
        self.check_same(report)
        judged = {line["key"] for line in report["tensors"]}
        made = [key for key in judged if "backward/blocks.0/grad_output.1" in key]
        self.assertEqual(len(made), 1, judged)

    def test_capture_changes_no_bit_of_the_run(self):
        for ranks, arguments in ((1, []), (2, ["--tp", "2", "--sp"])):
            with self.subTest(ranks=ranks):
                self.check_bits(launcher(TRAIN, ["--iters", "2", *arguments], ranks))


if __name__ == "__main__":
    unittest.main()
