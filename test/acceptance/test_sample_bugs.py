# SPDX-License-Identifier: Apache-2.0
"""Each bug of a sample, in two layouts: differs, and the module worked out beforehand comes first.

usage: test_sample_bugs.py SAMPLE     a folder of samples/ with an expected.json
"""
import json
import sys
import unittest

from runs import BUILD, SOURCE, Runs, launcher

SAMPLE = sys.argv[1]
EXPECTED = json.loads((SOURCE / "samples" / SAMPLE / "expected.json").read_text())
PROGRAM = {"megatron": SOURCE / "samples/megatron/pretrain_gpt.py",
           "torch": SOURCE / "samples/torch/train.py",
           "cpp": BUILD / "samples/cpp/trainer"}[SAMPLE]


def command(case):
    """The command of a case of expected.json: {"ranks", "arguments", ...}."""
    if SAMPLE == "cpp":
        return [PROGRAM, *case["arguments"]]
    return launcher(PROGRAM, case["arguments"], case["ranks"])


class SampleBugs(Runs):
    def test_the_expected_module_comes_first(self):
        reference = EXPECTED["reference"]
        self.capture("reference", command(reference))
        # The C++ trainer draws equal weights in every layout by itself.
        start = [] if SAMPLE == "cpp" else ["--init-from", self.traces / "reference"]
        for bug, cases in EXPECTED["bugs"].items():
            for number, case in enumerate(cases):
                with self.subTest(f"{bug}: {' '.join(case['arguments'])}"):
                    self.capture(f"{bug}-{number}", command(case), start)
                    self.check_first(self.diff("reference", f"{bug}-{number}", expected=1),
                                     case["first"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
