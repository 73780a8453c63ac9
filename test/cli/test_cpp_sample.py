# SPDX-License-Identifier: Apache-2.0
"""samples/cpp: the same training with capture on or off, in all layouts, however it is started."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
CAPTURE = BUILD / "tools/ttrace-capture"
TRAINER = BUILD / "samples/cpp/trainer"
LAYOUTS = [[], ["--tp", "2"], ["--dp", "2"], ["--pp", "2"], ["--tp", "2", "--dp", "2"],
           ["--pp", "4", "--tp", "2"], ["--dp", "4", "--zero", "1"],
           ["--tp", "2", "--pp", "2", "--dp", "2", "--zero", "1"]]
LIMIT_SECONDS = 120


def run(*command, **variables):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("RANK", "WORLD_SIZE") and not name.startswith("TTRACE_")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**kept, **variables}, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def losses(output):
    return [float.fromhex(line.split()[3]) for line in output.splitlines()]


class CppSample(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ttrace-test-")
        self.addCleanup(scratch.cleanup)
        self.trace = pathlib.Path(scratch.name) / "run.trace"

    def test_capture_changes_no_bit(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                plain = run(TRAINER, "--iters", "3", *layout)
                traced = run(CAPTURE, "-q", "--overwrite", "-o", self.trace, "--iterations", "0-2",
                             "--", TRAINER, "--iters", "3", *layout)
                self.assertEqual(len(losses(plain)), 3)
                self.assertEqual(plain, traced)

    def test_layouts_agree_and_the_model_learns(self):
        reference = losses(run(TRAINER, "--iters", "30"))
        self.assertLess(reference[-1], 0.5 * reference[0])
        for layout in LAYOUTS[1:]:
            for one, other in zip(reference[:5], losses(run(TRAINER, "--iters", "5", *layout))):
                self.assertAlmostEqual(one, other, delta=1e-5)

    def test_ranks_may_be_started_by_a_launcher(self):
        forked = run(TRAINER, "--tp", "2", "--iters", "2")
        script = "\n".join(f"RANK={rank} WORLD_SIZE=2 {TRAINER} --tp 2 --iters 2 &"
                           for rank in (0, 1)) + "\nwait"
        launched = run(CAPTURE, "-q", "-o", self.trace, "--", "sh", "-c", script)
        self.assertEqual(launched, forked)
        for rank in (0, 1):
            told = json.loads((self.trace / f"rank{rank:05d}/rank.json").read_text())
            self.assertEqual((told["rank"], told["world_size"], told["degraded"]), (rank, 2, False))
            self.assertEqual(told["axes"][2], {"name": "tp", "size": 2, "coord": rank})
            self.assertEqual(len(told["modules"]), 20)
            self.assertEqual(told["parameters"]["layers.1.fc1.weight"]["shape"], [32, 32])


if __name__ == "__main__":
    unittest.main()
