# SPDX-License-Identifier: Apache-2.0
"""Runs the samples under ttrace-capture and compares them, as a user's CI script would.

Most ranks are forks of one process that has done the imports; torchrun() starts them as users do.

TTRACE_BUILD names the Meson build directory. Everything goes into one temporary directory a class.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402
import limited  # noqa: E402

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
TOOLS = BUILD / "tools"
# For programs on the tests' NCCL and CUDA: streams do nothing before somebody waits for them, and
# capture copies from that CUDA.
FAKE_CUDA = {"FAKE_CUDA_LAZY": "1",
             "TTRACE_DEVICE_OPS": str(BUILD / "test/fake_nccl/libfake_device_ops.so")}
LIMIT_SECONDS = 240


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


def run(command, expected=0, clear=lambda: None):
    """Runs a command, shows its output when the exit code is not the expected one."""
    command = [str(word) for word in command]
    done = limited.run_again_if_it_hangs(command, LIMIT_SECONDS, clear, env=environment(), cwd=SOURCE)
    if expected is not None and done.returncode != expected:
        raise AssertionError(
            f"{' '.join(command)}\nexit code {done.returncode}, expected {expected}\n"
            f"--- stdout\n{done.stdout[-6000:]}\n--- stderr\n{done.stderr[-6000:]}")
    return done


def training_lines(output):
    """The lines with losses and gradient norms, at full precision."""
    return sorted(line.split("] ")[-1] for line in output.splitlines() if "iteration " in line)


def torchrun(program, arguments, ranks):
    """As users start ranks. Each of them, and torchrun, imports torch and Megatron: seconds."""
    if ranks == 1:
        return [sys.executable, program, *arguments]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks,
            program, *arguments]


SERVER = forkserver.Server()


def launcher(program, arguments, ranks):
    """The ranks as forks of a process with the imports done."""
    fork = [] if ranks == 1 else [SOURCE / "test/capture/programs/forked.py", ranks]
    return [*SERVER.command(), *fork, program, *arguments]


class Runs(unittest.TestCase):
    """Base class: a directory of traces, removed at the end."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="ttrace-test-")
        cls.traces = pathlib.Path(cls.scratch.name)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def capture(cls, name, command, options=()):
        """Captures into traces/NAME and returns what the program printed."""
        return run([TOOLS / "ttrace-capture", "-q", "-o", cls.traces / name, *options, "--",
                    *command], clear=lambda: shutil.rmtree(cls.traces / name)).stdout

    def diff(self, reference, candidate, expected, options=()):
        """The JSON report of ttrace-diff, after checking its exit code."""
        done = run([TOOLS / "ttrace-diff", self.traces / reference, self.traces / candidate,
                    "--json", "-", *options], expected=None)
        if done.returncode != expected:
            text = run([TOOLS / "ttrace-diff", self.traces / reference, self.traces / candidate,
                        *options], expected=None)
            self.fail(f"{candidate}: exit code {done.returncode}, expected {expected}\n"
                      f"{text.stdout[-5000:]}\n{text.stderr[-2000:]}")
        return json.loads(done.stdout)

    def check_bits(self, command):
        """Two iterations print the same losses and norms, captured and not."""
        plain = training_lines(run(command).stdout)
        traced = training_lines(self.capture(f"bits {len(command)}", command,
                                             ["--iterations", "0-1"]))
        self.assertEqual(len(plain), 2, plain)
        self.assertEqual(plain, traced)

    def check_same(self, report):
        self.assertEqual(report["verdict"], "same")
        self.assertIsNone(report["first"])
        coverage = report["coverage"]
        self.assertGreater(coverage["expected"], 0)
        self.assertEqual(coverage["compared"], coverage["expected"], coverage)

    def check_first(self, report, expected):
        self.assertEqual(report["verdict"], "differs")
        first = {part: report["first"][part] for part in ("module", "phase", "slot")}
        self.assertEqual(first, {part: expected.get(part, first[part]) for part in first},
                         json.dumps(report["findings"][:5], indent=1))
