# SPDX-License-Identifier: Apache-2.0
"""Invariants from healthy runs find the bugs of other runs, and nothing in healthy ones: scripts that
were traced with TrainCheck for test/golden, here collected by ttrace-capture --events.
"""
import json
import re
import sys
import unittest

from runs import LIMIT_SECONDS, SOURCE, TOOLS, Runs, run  # noqa: F401

SCRIPTS = SOURCE / "test/golden/samples"
# A bug, the healthy script that it was planted in, and what names its cause.
BUGS = {
    "b01_no_zero_grad": ("s01_sgd_mlp", r"zero_grad"),
    "b02_stale_params": ("s01_sgd_mlp", r"SGD\.step.*Parameter\.(data|grad)|sgd\.sgd"),
    "b03_frozen": ("s01_sgd_mlp", r"SGD\.step.*Parameter\.(data|grad)|requires_grad"),
    "b05_wrong_dtype": ("s05_amp_bf16", r"Linear\.forward.*(dtype|itemsize|bfloat16)|set_autocast"),
    "b07_sched_first": ("s02_adam_sched", r"(LRScheduler\.step|StepLR).*(Adam\.step|adam\.adam)"
                                          r"|(Adam\.step|adam\.adam).*(LRScheduler\.step|StepLR)"),
    "b09_no_backward": ("s01_sgd_mlp", r"SGD\.step.*Parameter\.(data|grad)|backward"),
}


class Detection(Runs):
    collected = set()

    @classmethod
    def collect(cls, script, name):
        """The trace of one run of a script, made when it is first wanted."""
        if name not in cls.collected:
            cls.capture(name, [sys.executable, SCRIPTS / f"{script}.py"], ["--events"])
            cls.collected.add(name)
        return cls.traces / name

    @classmethod
    def inferred(cls, script):
        """What holds in two healthy runs of a script."""
        file = cls.traces / f"{script}.invariants.json"
        if not file.exists():
            runs = [cls.collect(script, f"{script}.{number}") for number in (1, 2)]
            run([TOOLS / "ttrace-infer", *runs, "-o", file, "-q"])
        return file

    def check(self, trace, invariants, expected):
        done = run([TOOLS / "ttrace-check", trace, "-i", invariants, "--json", "-", "-q"], expected)
        return json.loads(done.stdout)

    def test_a_healthy_run_violates_nothing(self):
        for script in sorted({healthy for healthy, _ in BUGS.values()}):
            with self.subTest(script=script):
                invariants = self.inferred(script)
                self.assertGreater(len(invariants.read_text().splitlines()), 20)
                self.check(self.collect(script, f"{script}.3"), invariants, 0)

    def test_bugs_are_found(self):
        for bug, (healthy, cause) in BUGS.items():
            with self.subTest(bug=bug):
                report = self.check(self.collect(bug, bug), self.inferred(healthy), 1)
                texts = [entry["text"] for entry in report["invariants"] if entry["verdict"] == "failed"]
                self.assertTrue(any(re.search(cause, text) for text in texts), texts[:20])


if __name__ == "__main__":
    unittest.main()
