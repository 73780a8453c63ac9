# SPDX-License-Identifier: Apache-2.0
"""ttrace-check on real runs: silent on healthy ones in every layout, and each mistake that it can
see is found by the check that is meant to, at the right place."""
import json
import unittest

from runs import SOURCE, TOOLS, Runs, launcher, run

TORCH = SOURCE / "samples/torch/train.py"
MEGATRON = SOURCE / "samples/megatron/pretrain_gpt.py"
HANDWRITTEN = SOURCE / "samples/handwritten/train.py"
FAULTS = SOURCE / "test/acceptance/programs/faults.py"
CUT = SOURCE / "test/acceptance/programs/cut_by_hand.py"
LLAMA = "--swiglu --rope --rmsnorm --untie --kv-heads 2"

# (program, ranks, arguments)
HEALTHY = [
    (TORCH, 1, "--iters 2"),
    (TORCH, 2, "--dp 2 --iters 2"),
    (TORCH, 2, "--dp 2 --bf16 --iters 2"),
    (TORCH, 2, "--dp 2 --amp --optimizer sgd --iters 2"),
    (TORCH, 2, "--dp 2 --zero --iters 2"),
    (TORCH, 2, "--tp 2 --sp --iters 2"),
    (TORCH, 2, "--dp 2 --fsdp --mixed --iters 2"),
    (TORCH, 4, "--dp 4 --fsdp1 --replicas 2 --iters 2"),
    (TORCH, 4, "--dp 2 --tp 2 --sp --fsdp --iters 2"),
    (MEGATRON, 4, "--tp 2 --pp 2 --sp --bf16 --iters 2"),
    (MEGATRON, 4, "--tp 2 --dp 2 --distributed-optimizer --bucket-size 100000 --iters 2"),
    (MEGATRON, 2, "--dp 2 --bf16 --distributed-optimizer --iters 2"),
    (MEGATRON, 4, "--experts 4 --ep 2 --dp 4 --distributed-optimizer --iters 2"),
    (MEGATRON, 2, f"--cp 2 --iters 2 {LLAMA}"),
    (HANDWRITTEN, 4, "--cp 2 --tp 2 --zigzag --sp --iters 2"),
    (HANDWRITTEN, 2, "--pp 2 --iters 2"),
    (FAULTS, 2, ""),
    (FAULTS, 2, "--average --bf16"),
    (FAULTS, 2, "--optimizer sgd"),
    (CUT, 2, ""),
]

# (program, ranks, arguments): the check, the module, the ranks; "" and None: any
WRONG = {
    (FAULTS, 2, "same-shard"): ("data", "@root", [0, 1]),
    (FAULTS, 2, "clip-one-rank"): ("norm", "", None),
    (FAULTS, 2, "local-norm"): ("norm", "", None),
    (FAULTS, 2, "no-sync"): ("replicas", "", None),
    (FAULTS, 2, "unarmed"): ("replicas", "", None),
    (FAULTS, 2, "drift"): ("replicas", "head.bias", [0, 1]),
    (FAULTS, 1, "no-zero-grad"): ("zeroed", "body.words.weight", [0]),
    (FAULTS, 2, "no-zero-grad --optimizer sgd"): ("zeroed", "body.words.weight", [0]),
    (FAULTS, 1, "not-in-optimizer"): ("changed", "body.fc2.weight", [0]),
    (FAULTS, 2, "replaced"): ("changed", "head.weight", [0]),
    (FAULTS, 2, "frozen-moves"): ("changed", "spare.weight", [0]),
    (FAULTS, 2, "detached"): ("changed", "body.fc1.bias", [0, 1]),
    (FAULTS, 2, "nan-forward"): ("nonfinite", "body.norm", None),
    (FAULTS, 2, "nan-backward"): ("nonfinite", "head", None),
    (FAULTS, 2, "nan-data"): ("nonfinite", "body.words.weight", [1]),
    (FAULTS, 2, "stale-state"): ("update", "", None),
    (FAULTS, 2, "momentum-off --optimizer sgd"): ("update", "", None),
    (CUT, 2, "one-seed"): ("random", "feed_forward.part_dropout", [0, 1]),
    (CUT, 2, "split-seed"): ("random", "feed_forward.dropout", [0, 1]),
    (CUT, 2, "untied"): ("tied", "words.weight", None),
    (CUT, 2, "other-data"): ("data", "@root", [0, 1]),
    (TORCH, 2, "--dp 2 --iters 2 --accumulate 2 --micro-batch-size 1 --bug late-grad"):
        ("replicas", "", None),
    (HANDWRITTEN, 2, "--tp 2 --sp --iters 2 --bug norm-grad-sync"):
        ("replicas", "blocks.0.norm_mid.weight", None),
    (MEGATRON, 2, "--tp 2 --sp --iters 2 --bug sp-layernorm-grad"): ("replicas", "", None),
    (MEGATRON, 2, "--tp 2 --iters 2 --bug norm-copies"): ("norm", "", None),
    (MEGATRON, 2, "--pp 2 --iters 2 --bug tied-late"):
        ("tied", "embedding.word_embeddings.weight", None),
}


def name_of(case):
    program, ranks, arguments = case
    return " ".join([program.parent.name, program.stem, str(ranks), arguments])


class Check(Runs):
    def report(self, case, expected):
        program, ranks, arguments = case
        name = name_of(case).replace(" ", "_")
        self.capture(name, launcher(program, arguments.split(), ranks), ["--iterations", "0-1"])
        done = run([TOOLS / "ttrace-check", self.traces / name, "--json", "-"], expected=None)
        text = run([TOOLS / "ttrace-check", self.traces / name], expected=None).stdout
        self.assertEqual(done.returncode, expected, text)
        return {entry["name"]: entry for entry in json.loads(done.stdout)["checks"]}, text

    def test_healthy_runs_are_silent(self):
        for case in HEALTHY:
            with self.subTest(name_of(case)):
                checks, text = self.report(case, expected=0)
                self.assertEqual([v for c in checks.values() for v in c["violations"]], [], text)
                for name in ("nonfinite", "update", "changed"):  # what every one of them shows
                    self.assertEqual(checks[name]["verdict"], "passed", text)

    def test_mistakes_are_found_by_the_check_for_them(self):
        for case, (check, module, ranks) in WRONG.items():
            with self.subTest(name_of(case)):
                checks, text = self.report(case, expected=1)
                self.assertEqual(checks[check]["verdict"], "violated", text)
                first = checks[check]["violations"][0]
                self.assertIn(first["module"], (module, first["module"] if not module else ""), text)
                if ranks is not None:
                    self.assertEqual(first["ranks"], ranks, text)


if __name__ == "__main__":
    unittest.main()
