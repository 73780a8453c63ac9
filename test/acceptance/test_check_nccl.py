# SPDX-License-Identifier: Apache-2.0
"""ttrace-check on samples/nccl: silent on its layouts, and its mistakes in process groups, buffers
and streams are found in what was recorded of NCCL, without a run to compare with."""
import json
import os
import unittest

from runs import BUILD, FAKE_CUDA, TOOLS, Runs, run

TRAINER = BUILD / "samples/nccl/trainer"
HEALTHY = ["--tp 2 --pp 2", "--tp 2 --dp 2", "--pp 2 --dp 2", "--dp 4", "--tp 4",
           "--tp 2 --dp 2 --zero 1", "--pp 2 --dp 2 --zero 1"]

# Arguments: the check, the module and the ranks of its first violation.
WRONG = {
    # The last parameter but norms, whose own sums over tp come before: halves of it are added up.
    "--tp 2 --dp 2 --bug wrong-group": ("parts", "output.weight", [0, 1]),
    "--tp 2 --dp 2 --zero 1 --bug wrong-group": ("parts", "output.weight", [0, 1]),
    # fc2 of the other three layers sums over tp.
    "--tp 2 --dp 2 --bug wrong-activation-group": ("skipped", "layers.1.fc2", None),
    # Each stage forgets its first parameter.
    "--tp 2 --dp 2 --bug missing-all-reduce": ("unreduced", "embedding.weight", [0, 1, 2, 3]),
    "--pp 2 --dp 2 --bug missing-all-reduce": ("unreduced", "embedding.weight", [0, 1]),
    "--tp 2 --dp 2 --bug doubled-reduction": ("twice", "layers.1.norm.weight", [0, 2]),
    "--pp 2 --dp 2 --zero 1 --bug doubled-reduction": ("twice", "layers.1.norm.weight", [0, 1]),
    # The first reduce-scatter of an iteration: of the embedding, or of the first gradient.
    "--tp 2 --pp 2 --bug swapped-slices": ("groups", "embedding", [1, 0]),
    "--dp 4 --zero 1 --bug swapped-slices": ("groups", "output.weight", [3, 2, 1, 0]),
    # The second micro-batch sends the first one's buffer.
    "--tp 2 --pp 2 --bug stale-buffer": ("fresh", "layers.1", [0]),
    "--pp 2 --dp 2 --bug stale-buffer": ("fresh", "layers.1", [0]),
    # fc1 of the other three layers computes with what it gathered.
    "--tp 2 --pp 2 --bug missing-wait": ("waited", "layers.1.fc1", [0, 1]),
    "--tp 2 --dp 2 --bug missing-wait": ("waited", "layers.1.fc1", [0, 1, 2, 3]),
    "--tp 2 --pp 2 --bug norm-grad-sync": ("replicas", "layers.1.norm.bias", [0, 1]),
}


class CheckNccl(Runs):
    def checked(self, arguments, expected):
        self.capture(arguments, [TRAINER, "--iters", "2", *arguments.split()],
                     ["--comm", "full", "--iterations", "0-1"])
        done = run([TOOLS / "ttrace-check", self.traces / arguments, "--json", "-"], expected=None)
        text = run([TOOLS / "ttrace-check", self.traces / arguments], expected=None).stdout
        self.assertEqual(done.returncode, expected, text)
        return {entry["name"]: entry for entry in json.loads(done.stdout)["checks"]}, text

    def test_layouts_are_silent(self):
        for arguments in HEALTHY:
            with self.subTest(arguments):
                checks, text = self.checked(arguments, 0)
                self.assertEqual([v for c in checks.values() for v in c["violations"]], [], text)
                for name in ("order", "groups", "conserve", "twice", "fresh"):
                    self.assertEqual(checks[name]["verdict"], "passed", text)
                for name in ("order", "conserve"):
                    self.assertEqual(checks[name]["not_checked"], {}, text)

    def test_mistakes_are_found_by_the_check_for_them(self):
        for arguments, (check, module, ranks) in WRONG.items():
            with self.subTest(arguments):
                checks, text = self.checked(arguments, 1)
                self.assertEqual(checks[check]["verdict"], "violated", text)
                first = checks[check]["violations"][0]
                self.assertEqual((first["module"], first["iteration"]), (module, 0), text)
                if ranks is not None:
                    self.assertEqual(first["ranks"], ranks, text)
                self.assertEqual(checks["conserve"]["violations"], [], text)


if __name__ == "__main__":
    os.environ.update(FAKE_CUDA)
    unittest.main()
