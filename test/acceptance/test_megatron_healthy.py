# SPDX-License-Identifier: Apache-2.0
"""Healthy Megatron-Core runs in every layout against the one-rank reference: same, all of it."""
import unittest

from runs import SOURCE, Runs, launcher, run, torchrun, training_lines

TRAIN = SOURCE / "samples/megatron/pretrain_gpt.py"
COMMON = ["--iters", "1"]

# name: (ranks, arguments)
LAYOUTS = {
    "tp2": (2, ["--tp", "2"]),
    "tp4": (4, ["--tp", "4"]),
    "pp2": (2, ["--pp", "2"]),
    "pp2-vpp2": (2, ["--pp", "2", "--vpp", "2"]),
    "tp2-sp": (2, ["--tp", "2", "--sp"]),
    "dp2": (2, ["--dp", "2"]),
    "tp2-pp2-sp": (4, ["--tp", "2", "--pp", "2", "--sp"]),
    "dp2-distributed-optimizer": (2, ["--dp", "2", "--distributed-optimizer"]),
    "tp2-dp2-distributed-optimizer": (4, ["--tp", "2", "--dp", "2", "--distributed-optimizer"]),
    "dp2-buckets": (2, ["--dp", "2", "--distributed-optimizer", "--bucket-size", "100000"]),
    "tp2-recompute": (2, ["--tp", "2", "--recompute", "2"]),
    "tp2-sp-overlap-ring": (2, ["--tp", "2", "--sp", "--overlap-ring"]),
    "cp2": (2, ["--cp", "2"]),
    "tp2-cp2-sp": (4, ["--tp", "2", "--cp", "2", "--sp"]),
}

# Models of their own: flags, and layouts as above
LLAMA = ["--rope", "--untie", "--rmsnorm", "--swiglu", "--kv-heads", "2"]
MODELS = {
    "llama": (LLAMA, {"cp2": (2, ["--cp", "2"])}),
    "flash": (["--flash"], {"cp2": (2, ["--cp", "2"])}),
    "experts": (["--experts", "4"], {"tp2-sp-ep2": (2, ["--tp", "2", "--sp", "--ep", "2"]),
                                     "dp2-ep2": (2, ["--dp", "2", "--ep", "2"])}),
    "mtp": (LLAMA + ["--mtp", "1"], {"pp2": (2, ["--pp", "2"]),
                                     "tp2-sp": (2, ["--tp", "2", "--sp"])}),
    "padded": (["--vocab", "100", "--pad-vocab", "64"], {"tp2": (2, ["--tp", "2"])}),
    "per-token-loss": (["--per-token-loss"], {"dp2": (2, ["--dp", "2"])}),
    # Short: a value that round-off pushes over the middle between two FP8 codes is no round-off.
    "fp8": (["--fp8", "--layers", "2", "--global-batch-size", "1"],
            {"tp2-cp2-sp": (4, ["--tp", "2", "--cp", "2", "--sp"])}),
}


class MegatronHealthy(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.printed = cls.capture("reference", torchrun(TRAIN, COMMON, 1))

    def candidate(self, name, ranks, arguments, reference="reference", start=launcher):
        return self.capture(name, start(TRAIN, COMMON + arguments, ranks),
                            ["--init-from", self.traces / reference])

    def test_layouts_in_float32(self):
        for name, (ranks, arguments) in LAYOUTS.items():
            with self.subTest(name):
                self.candidate(name, ranks, arguments)
                self.check_same(self.diff("reference", name, expected=0))

    def test_models_of_their_own_in_float32(self):
        for model, (flags, layouts) in MODELS.items():
            reference = f"reference-{model}"
            self.capture(reference, launcher(TRAIN, COMMON + flags, 1))
            for name, (ranks, arguments) in layouts.items():
                with self.subTest(model, layout=name):
                    self.candidate(f"{model}-{name}", ranks, flags + arguments, reference)
                    self.check_same(self.diff(reference, f"{model}-{name}", expected=0))

    def test_bfloat16(self):
        self.capture("reference-bf16", launcher(TRAIN, COMMON + ["--bf16"], 1))
        self.candidate("bf16", 4, ["--tp", "2", "--pp", "2", "--sp", "--bf16"], "reference-bf16",
                       start=torchrun)
        self.check_same(self.diff("reference-bf16", "bf16", expected=0))

    def test_capture_changes_no_bit_of_the_run(self):
        plain = training_lines(run(torchrun(TRAIN, COMMON, 1)).stdout)
        self.assertEqual(len(plain), 1, plain)
        self.assertEqual(plain, training_lines(self.printed))

        arguments = ["--iters", "2", "--tp", "2", "--pp", "2", "--sp"]
        self.check_bits(launcher(TRAIN, arguments, 4))

    def test_a_sharded_run_is_the_same_as_itself_seeded_by_number(self):
        seeded = ["--init-from", "seed:7"]
        self.capture("seed-one", launcher(TRAIN, COMMON, 1), seeded)
        self.capture("seed-pp2", launcher(TRAIN, COMMON + ["--pp", "2"], 2), seeded)
        self.check_same(self.diff("seed-one", "seed-pp2", expected=0))


if __name__ == "__main__":
    unittest.main()
