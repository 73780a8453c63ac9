# SPDX-License-Identifier: Apache-2.0
"""ttrace-tolerance: noise of perturbed runs against NumPy's, and what is done with it."""
import json
import pathlib
import unittest

import h5py
import numpy

from runs import SOURCE, TOOLS, Runs, launcher, run

TRAIN = SOURCE / "samples/torch/train.py"
MODEL = ["--iters", "1", "--micro-batch-size", "2"]


def dataset(trace: pathlib.Path, key: str):
    """The values of `it0/...` as float64."""
    with h5py.File(trace / "rank00000/it000000.h5") as segment:
        return segment["data/" + key.split("/", 1)[1]][()].astype("float64")


class Limits(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        one = launcher(TRAIN, MODEL, 1)
        cls.capture("ref", one)
        for seed in (1, 2):
            cls.capture(f"perturbed{seed}", one, ["--perturb", str(seed)])
        start = ["--init-from", cls.traces / "ref"]
        cls.capture("tp2", launcher(TRAIN, [*MODEL, "--tp", "2"], 2), start)
        cls.capture("wrong", launcher(TRAIN, [*MODEL, "--dp", "2", "--bug", "grad-factor"], 2),
                    start)

    def tolerance(self, *words, expected=0):
        return run([TOOLS / "ttrace-tolerance", *words], expected)

    def limits(self):
        path = self.traces / "limits.json"
        self.tolerance("-q", *(self.traces / name for name in ("ref", "perturbed1", "perturbed2")),
                       "-o", path)
        return path

    def test_noise_is_the_root_mean_square_over_the_runs(self):
        table = json.loads(self.limits().read_text())
        self.assertEqual([entry["seed"] for entry in table["perturbed"]], [1, 2])
        for key in ("it0/mb0/forward/layers.2.feed_forward.w1/output.0",
                    "it0/mb0/backward/layers.1.attention.wq/grad_output.0",
                    "it0/grad/layers.0.attention.wq.weight/reduced"):
            reference = dataset(self.traces / "ref", key)
            squares, factors = [], []
            for seed in (1, 2):
                error = dataset(self.traces / f"perturbed{seed}", key) - reference
                squares.append((error ** 2).sum() / (reference ** 2).sum())
                factors.append((error * reference).sum() / (reference ** 2).sum())
            self.assertGreater(min(squares), 0, key)
            self.assertAlmostEqual(table["tensors"][key]["error"] / numpy.sqrt(numpy.mean(squares)),
                                   1, places=9)
            self.assertAlmostEqual(
                table["tensors"][key]["factor"] / numpy.sqrt(numpy.mean(numpy.square(factors))), 1,
                places=6)

    def test_a_verdict_in_the_light_of_it(self):
        limits = ["--limits", self.limits()]
        report = self.diff("ref", "tp2", expected=0, options=limits)
        self.check_same(report)
        self.assertEqual((report["mode"], report["weak"]), ("envelope", False))
        self.check_first(self.diff("ref", "wrong", expected=1, options=limits),
                         {"module": "output.weight", "phase": "grad", "slot": "reduced"})

    def test_limits_hold_for_one_reference_and_for_different_runs(self):
        limits = self.limits()
        done = run([TOOLS / "ttrace-diff", self.traces / "perturbed1", self.traces / "tp2",
                    "--limits", limits], 2)
        self.assertIn("another reference", done.stderr)
        for names, words in ((("ref", "perturbed1", "perturbed1"), "the same twice"),
                             (("ref", "tp2"), "no perturbed run")):
            done = self.tolerance(*(self.traces / name for name in names), "-o",
                                  self.traces / "none.json", expected=2)
            self.assertIn(words, done.stderr)
            self.assertFalse((self.traces / "none.json").exists())
        (self.traces / "text").write_text("no limits")
        run([TOOLS / "ttrace-diff", self.traces / "ref", self.traces / "tp2", "--limits",
             self.traces / "text"], 2)

    def test_calibration_widens_with_a_warning_and_never_narrows(self):
        pack = self.traces / "tp2.pack"
        run([TOOLS / "ttrace-merge", "-q", self.traces / "tp2", "--pack", "--like",
             self.traces / "ref", "-o", pack])
        for name, flags in (("own", []), ("high", ["--fp64"])):
            self.capture(name, launcher(TRAIN, [*MODEL, *flags], 1), ["--replay", pack])
        words = ["--calibrate", self.traces / "own", self.traces / "tp2", "--high",
                 self.traces / "high", "-o", self.traces / "calibrated.json"]
        done = self.tolerance(*words)
        self.assertNotIn("widened", done.stderr)
        table = json.loads((self.traces / "calibrated.json").read_text())
        self.assertTrue(0 < table["healthy"]["norm"] < 1, table["healthy"])

        # A healthy run that came to twice the limit of the norm: 2 x 1.25 from now on.
        table["healthy"]["norm"] = 2.0
        (self.traces / "known.json").write_text(json.dumps(table))
        done = self.tolerance(*words, "--from", self.traces / "known.json")
        self.assertIn("limits of norm are widened by 2.5", done.stderr)
        again = json.loads((self.traces / "calibrated.json").read_text())
        self.assertEqual((again["healthy"]["norm"], len(again["calibrated_on"])), (2.0, 2))


if __name__ == "__main__":
    unittest.main()
