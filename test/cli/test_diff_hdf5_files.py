# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on HDF5 files that lead to other files, and on files that others take the place of."""
from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import time
import unittest

import h5py
import numpy as np

from made_files import DIFF, DIFFERS, SAME, TROUBLE, FilesTest


class Replaced(FilesTest):
    def test_a_file_that_another_takes_the_place_of(self):
        """What libhdf5 still reads of the first and what is then read of the second are no file at all."""
        values = np.random.default_rng(0).integers(0, 100, 2_000_000).astype("f4")
        def fill(packed, plain):
            def put(file):
                file.create_dataset("a", data=packed, chunks=(2**17,), compression="gzip", compression_opts=1)
                file["z"] = np.full(300_000, plain)
            return put
        a, b = self.write("a.h5", fill(values, 1.0)), self.write("b.h5", fill(values, 2.0))
        other = shutil.copy(b, self.folder / "other.h5")
        with h5py.File(other, "r+") as file:  # as a in z alone, where b differs from it in z alone
            file["z"][:] = 1.0
            file["a"][: 2**17] = 7
        self.assertEqual(self.kinds(a, b), [("not_equal", "/z")])
        self.assertEqual(self.kinds(a, other), [("not_equal", "/a")])
        begin = time.monotonic()
        self.run_diff(a, b, code=DIFFERS)
        whole = time.monotonic() - begin
        seen = set()
        for attempt in range(30):
            shutil.copy(b, self.folder / "now.h5")
            shutil.copy(other, self.folder / "next.h5")
            process = subprocess.Popen([DIFF, a, self.folder / "now.h5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(whole * attempt / 30)
            os.rename(self.folder / "next.h5", self.folder / "now.h5")
            output, error = process.communicate(timeout=60)
            seen.add(process.returncode)
            self.assertIn(process.returncode, (DIFFERS, TROUBLE), output + error)
            if process.returncode == TROUBLE:
                self.assertIn("now.h5: another file has taken its place", error)
        self.assertIn(TROUBLE, seen)


class ExternalLinks(FilesTest):
    def chain(self, side: str, **first):
        """SIDE.h5 -> SIDE1.h5 -> SIDE2.h5 -> SIDE1.h5 -> ..."""
        for at, to in (("1", "2"), ("2", "1")):
            self.write(f"{side}{at}.h5", {"n": int(at), "l": h5py.ExternalLink(f"{side}{to}.h5", "/")})
        return self.write(f"{side}.h5", {**first, "l": h5py.ExternalLink(f"{side}1.h5", "/")})

    def test_cycles_of_files_end(self):
        a, b = self.chain("a", x=1), self.chain("b", x=1)
        self.assertEqual(self.report(a, b, code=SAME)["compared"]["datasets"], 3)
        self.report(a, b, "--filter", "/l/l/n", code=SAME)
        with h5py.File(self.folder / "b2.h5", "r+") as file:
            file["n"][()] = 5
        self.assertEqual(self.kinds(a, b), [("not_equal", "/l/l/n")])

    def test_many_links_to_one_file(self):
        count = 400
        for side in "ab":
            self.write(f"{side}data.h5", {f"d{at}": np.arange(10.0) + at for at in range(count)})
            self.write(f"{side}.h5", {f"d{at}": h5py.ExternalLink(f"{side}data.h5", f"/d{at}") for at in range(count)})
        done = subprocess.run([DIFF, self.folder / "a.h5", self.folder / "b.h5"], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        self.assertEqual(done.returncode, SAME, done.stdout + done.stderr)
        self.assertIn("same: 400 datasets", done.stdout)


if __name__ == "__main__":
    unittest.main()
