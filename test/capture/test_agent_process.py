#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The traced program behaves as it would alone: exit codes, children, errors, other hooks."""
import os
import pathlib
import subprocess
import sys
import unittest
import venv

from agent_runs import AGENT, CAPTURE, PROGRAMS, CaptureTest, Trace

LINES = 3  # that every run of misbehaved.py prints


class Process(CaptureTest):
    def traced(self, case, expected=0, **more):
        return self.capture(case, "misbehaved.py", case, expected=expected,
                            launcher=[sys.executable], **more)

    def test_an_early_end_leaves_a_whole_segment(self):
        trace, done = self.traced("os-exit", expected=3)
        self.assertEqual(len(done.stdout.splitlines()), LINES)
        self.assert_whole(trace)

    def assert_whole(self, trace):
        self.assertEqual(trace.iterations(), [0])
        self.assertTrue(trace.segment().complete)
        self.assertIn("step/a.weight/param", trace.segment().keys())

    def test_the_exit_code_is_kept_and_another_sitecustomize_still_runs(self):
        folder = self.scratch / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text("print('the other one ran', __name__)\n")
        trace, done = self.traced("exit", expected=5, PYTHONPATH=str(folder))
        self.assertEqual(done.stdout.splitlines()[0], "the other one ran sitecustomize")
        self.assertEqual(len(done.stdout.splitlines()), 1 + LINES)
        self.assert_whole(trace)

    def test_the_programs_own_exceptions_are_its_own(self):
        trace, done = self.traced("raise-once+raise", expected=1)
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", done.stderr)
        self.assertNotIn("ttrace_agent", done.stderr)  # no frame of ours in the traceback's words
        # The one that it caught leaves the names right.
        self.assertIn("caught: the program's own error", done.stdout)
        segment = trace.segment()
        self.assertIn("mb1/forward/a/output.0", segment.keys())
        self.assertNotIn("mb0/forward/@root/output.0", segment.keys())
        self.assertIn("mb1/forward/@root/output.0", segment.keys())

    def test_errors_in_the_capture_disarm_it_and_the_program_goes_on(self):
        trace, done = self.traced("strange", options=["--iterations", "0-"])
        self.assertEqual(len(done.stdout.splitlines()), 12)
        self.assertIn("capture ends here, the program goes on", done.stderr)
        rank = trace.rank()
        self.assertTrue(rank["degraded"])
        self.assertIn(("hook failed", "Model"), trace.events())
        self.assertIn("not for you", str(rank["events"]))
        self.assertIn("mb0/forward/a/output.0", trace.segment().keys())

    def test_workers_of_a_data_loader_and_forked_children_are_silent(self):
        trace, done = self.traced("workers+fork", options=["--iterations", "0-"])
        self.assertEqual(trace.ranks, [0])
        self.assertEqual(trace.iterations(), list(range(4 + LINES)))  # 4 samples
        self.assertEqual(trace.events(), set())
        self.assertEqual(len(done.stdout.splitlines()), LINES)
        for iteration in trace.iterations():
            segment = trace.segment(iteration)
            self.assertTrue(segment.complete)
            self.assertEqual({row.module for row in segment.rows if row.phase == "forward"},
                             {"@root", "a", "b"})
            self.assertEqual({row.microbatch for row in segment.rows}, {-1, 0})

    def test_a_python_that_ignores_its_environment_is_loudly_not_captured(self):
        _, done = self.capture("isolated", "misbehaved.py", "none", expected=2,
                               launcher=[sys.executable, "-I"])
        self.assertIn("nothing was captured", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), LINES)

    def test_starting_the_agent_by_path_captures_it(self):
        trace, done = self.capture("by-path", "misbehaved.py", "none",
                                   launcher=[sys.executable, "-I", AGENT / "ttrace_agent"])
        self.assertEqual(len(done.stdout.splitlines()), LINES)
        self.assertIn("mb0/forward/a/output.0", trace.segment().keys())

    def test_an_installed_pth_captures_it(self):
        home = self.scratch / "venv"
        venv.create(home, with_pip=False, symlinks=True)
        python = home / "bin" / "python"
        places = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True).stdout.strip()
        torch_home = pathlib.Path(sys.modules["torch"].__file__).parents[1]
        (pathlib.Path(places) / "torch_of_the_test.pth").write_text(f"{torch_home}\n")
        self.run_command([CAPTURE, "--install-pth", python])
        self.run_command([CAPTURE, "-o", self.scratch / "pth", "--", python, "-I",
                          PROGRAMS / "misbehaved.py", "none"])
        self.assertIn("mb0/forward/a/output.0", Trace(self.scratch / "pth").segment().keys())

    def test_python_without_torch_is_left_alone(self):
        done = self.run_command([CAPTURE, "-o", self.scratch / "no-torch", "--", sys.executable,
                                 "-c", "import sys; print(sorted(m for m in sys.modules if "
                                       "m.startswith('ttrace_agent')))"], expected=2)
        self.assertEqual(done.stdout.strip(), "['ttrace_agent', 'ttrace_agent.arming']")

    def test_the_agent_does_nothing_without_a_trace(self):
        path = f"{AGENT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = self.run_command([sys.executable, PROGRAMS / "misbehaved.py", "none"],
                                PYTHONPATH=path)
        self.assertEqual((len(done.stdout.splitlines()), done.stderr), (LINES, ""))


if __name__ == "__main__":
    unittest.main()
