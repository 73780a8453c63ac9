# SPDX-License-Identifier: Apache-2.0
"""HDF5 files for tests of ttrace-diff, and what it says of a pair of them."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy as np

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
DIFF = BUILD / "tools" / "ttrace-diff"
SAME, DIFFERS, TROUBLE = 0, 1, 2
f4 = np.float32


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ttrace-hdf5-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def write(self, name: str, fill) -> pathlib.Path:
        """A file that `fill(file)` fills; a dict stands for datasets."""
        path = self.folder / name
        with h5py.File(path, "w") as file:
            if callable(fill):
                fill(file)
            else:
                for key, value in fill.items():
                    file[key] = value
        return path

    def run_diff(self, *arguments, code: int, stdout_only: bool = False) -> str:
        done = subprocess.run([DIFF, *map(str, arguments)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if stdout_only else done.stdout + done.stderr

    def peak(self, *arguments) -> tuple[int, int]:
        """Exit code and MiB. Started by a small process, because a child begins with its parent's peak."""
        small = ("import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions="
                 "[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]); _, status, usage = os.wait4(pid, 0); "
                 "print(os.waitstatus_to_exitcode(status), usage.ru_maxrss // 1024)")
        done = subprocess.run([sys.executable, "-S", "-c", small, DIFF, *map(str, arguments)], capture_output=True,
                              text=True, check=True)
        code, peak = map(int, done.stdout.split())
        return code, peak

    def cost(self, *arguments, code: int) -> tuple[float, int]:
        """Seconds and MiB."""
        begin = time.monotonic()
        exit_code, peak = self.peak(*arguments)
        self.assertEqual(exit_code, code)
        return time.monotonic() - begin, peak

    def report(self, left, right, *options, code: int) -> dict:
        """Of two files or of what fills them."""
        paths = [self.write(f"{name}.h5", fill) if not isinstance(fill, pathlib.Path) else fill
                 for name, fill in (("a", left), ("b", right))]
        report = json.loads(self.run_diff(*paths, "--json", "-", *options, code=code, stdout_only=True))
        self.assertEqual(report["verdict"], ["same", "differs", "trouble"][code])
        self.assertEqual(code == DIFFERS, bool(report["findings"]))
        return report

    def kinds(self, left, right, *options) -> list[tuple[str, str]]:
        report = self.report(left, right, *options, code=DIFFERS)
        return [(finding["kind"], finding["path"]) for finding in report["findings"]]
