# SPDX-License-Identifier: Apache-2.0
"""ttrace-merge leaves collective calls out, says so, and nothing reads them in what it wrote."""
from __future__ import annotations

import subprocess
import unittest

from made_checks import CHECK, PASSED, TROUBLE, along, drawn
from made_collectives import CollectiveTest, Made
from made_traces import BUILD

TOOLS = BUILD / "tools"


class MergedCollectives(CollectiveTest):
    def setUp(self):
        super().setUp()
        made = Made(2, along("dp", 2))
        made.parameters = lambda rank: ["fc.weight"]
        for iteration in range(2):
            for rank in range(2):
                made.record(rank, f"it{iteration}/param/fc.weight/value", drawn(iteration, 4, 8))
            for _ in range(iteration + 1):
                x = [drawn(rank, 32) for rank in range(2)]
                made.call("all_reduce", "dp", [0, 1], x, [sum(x)] * 2, reduction="sum",
                          iteration=iteration)
        self.made = self.write_ranks("run.trace", made.described())
        self.merged = self.folder / "merged"

    def run_tool(self, tool, *arguments, code: int = PASSED) -> str:
        done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def merge(self, *arguments) -> str:
        return self.run_tool(TOOLS / "ttrace-merge", self.made, *arguments)

    def test_it_says_how_many_are_left_out(self):
        """One call of each rank in iteration 0, two in iteration 1."""
        self.assertIn("6 collective calls of the ranks are left out", self.merge("-o", self.merged))
        for options, text in ((["--iteration", "0", "-o", self.folder / "one"], "2 collective"),
                              (["-o", self.folder / "quiet", "-q"], ""), (["--check"], "")):
            said = self.merge(*options)
            self.assertIn(text, said)
            self.assertEqual("left out" in said, bool(text))

    def test_what_is_merged_is_refused(self):
        self.merge("-o", self.merged)
        for tool, arguments in ((CHECK, []), (CHECK, ["--check", "order"]),
                                (TOOLS / "ttrace-inspect", ["--collectives"])):
            self.assertIn("ttrace-merge wrote it",
                          self.run_tool(tool, self.merged, *arguments, code=TROUBLE))


if __name__ == "__main__":
    unittest.main()
