# SPDX-License-Identifier: Apache-2.0
"""Each bug of a sample, in two layouts: differs, the module worked out beforehand comes first, and
its cause is said where one is knowable. Where the table tells a check, ttrace-check finds the bug
without the healthy run, too.

usage: test_sample_bugs.py SAMPLE     a folder of samples/ with an expected.json
"""
import fnmatch
import json
import os
import sys
import unittest

from runs import BUILD, FAKE_CUDA, SOURCE, TOOLS, Runs, launcher, run

sys.path.insert(0, str(SOURCE / "bench"))
from detection_causes import says  # noqa: E402

SAMPLE = sys.argv[1]
EXPECTED = json.loads((SOURCE / "samples" / SAMPLE / "expected.json").read_text())
PROGRAM = {"megatron": SOURCE / "samples/megatron/pretrain_gpt.py",
           "torch": SOURCE / "samples/torch/train.py",
           "handwritten": SOURCE / "samples/handwritten/train.py",
           "cpp": BUILD / "samples/cpp/trainer",
           "nccl": BUILD / "samples/nccl/trainer"}[SAMPLE]
STARTS_ITS_RANKS = SAMPLE in ("cpp", "nccl")
COLLECTIVES = ["--comm", "full"] if SAMPLE == "nccl" else []


def command(arguments, ranks):
    return [PROGRAM, *arguments] if STARTS_ITS_RANKS else launcher(PROGRAM, arguments, ranks)


class SampleBugs(Runs):
    def reference(self, model, options):
        """The healthy run of the same model on one rank, captured once."""
        name = " ".join(["reference", *model, *(["filtered"] if options else [])])
        if not (self.traces / name).exists():
            self.capture(name, command(model, 1), [*COLLECTIVES, *options])
        return name

    def check_case(self, case):
        options = case.get("capture", [])
        reference = self.reference(case["model"], options)
        # These draw equal weights in every layout by themselves.
        start = ([] if STARTS_ITS_RANKS or SAMPLE == "handwritten"
                 else ["--init-from", self.traces / reference])
        self.capture(case["name"], command([*case["model"], *case["layout"], "--bug", case["bug"]],
                                           case["ranks"]), [*start, *COLLECTIVES, *options])
        report = self.diff(reference, case["name"], expected=1)
        self.assertEqual(report["verdict"], "differs")
        first = {part: report["first"][part] for part in ("module", "phase", "slot")}
        accepted = [{part: key[part] for part in first} for key in (case["first"], *case["also"])]
        if case["first"]["phase"] == "missing":
            self.assertEqual((report["findings"][0]["kind"], first["module"]),
                             ("missing", case["first"]["module"]))
        else:
            self.assertIn(first, accepted)
        if "check" in case:
            self.check_alone(case)
        causes = [cause["what"] for cause in report["findings"][0]["causes"]]
        self.assertIn(says(causes, case["cause"]), ("right", "", "offered"), causes)

    def check_alone(self, case):
        """What ttrace-check says of the trace without a reference, where it can know."""
        wanted = case["check"]
        done = run([TOOLS / "ttrace-check", self.traces / case["name"], "--json", "-"],
                   expected=1 if wanted else 0)
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        violated = [name for name, check in checks.items() if check["verdict"] == "violated"]
        if wanted is None:
            self.assertEqual(violated, [])
            return
        self.assertIn(wanted["name"], violated)
        named = {violation["module"] for violation in checks[wanted["name"]]["violations"]}
        for pattern in wanted["modules"]:
            self.assertTrue(fnmatch.filter(named, pattern), (pattern, named))
        self.assertEqual([module for module in named
                          if not any(fnmatch.fnmatch(module, pattern)
                                     for pattern in wanted["modules"])], [])

    def test_the_expected_module_comes_first(self):
        for case in EXPECTED["runs"]:
            with self.subTest(case["name"]):
                self.check_case(case)


if __name__ == "__main__":
    os.environ.update(FAKE_CUDA)
    unittest.main(argv=sys.argv[:1])
