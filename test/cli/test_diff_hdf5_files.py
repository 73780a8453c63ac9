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

    def pair_of_links(self, name: str, put) -> list:
        """Two files in folders of their own, each with links to `name` beside it, which `put(path)` makes."""
        paths = []
        for side in "ab":
            (self.folder / side).mkdir(exist_ok=True)
            paths.append(self.write(f"{side}/main.h5", {"x": 1, "direct": h5py.ExternalLink(name, "/y"),
                                                        "by_name": h5py.SoftLink("/direct")}))
            put(self.folder / side / name)
        return paths

    def test_a_link_to_a_file_that_cannot_be_read(self):
        def cut(path):
            self.write(path, {"y": np.full(5000, 1.0 if path.parent.name == "a" else 2.0)})
            os.truncate(path, 3000)
        self.assertIn("data.h5", self.run_diff(*self.pair_of_links("data.h5", cut), code=TROUBLE))
        self.assertIn("text.h5", self.run_diff(*self.pair_of_links("text.h5", lambda path: path.write_text("no HDF5")), code=TROUBLE))

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_link_to_a_file_that_may_not_be_read(self):
        def locked(path):
            self.write(path, {"y": 1})
            path.chmod(0)
        self.assertIn("ermission", self.run_diff(*self.pair_of_links("locked.h5", locked), code=TROUBLE))

    def test_what_is_not_there_is_a_link_to_nothing(self):
        for name, put in (("none.h5", lambda path: None), ("other.h5", lambda path: self.write(path, {"z": 1}))):
            report = self.report(*self.pair_of_links(name, put), code=SAME)
            self.assertEqual([note["kind"] for note in report["notes"]], ["dangling", "dangling"])

    def test_a_link_back_to_the_file_itself(self):
        def fill(value):
            def put(file):
                file["x"] = value
                file["again"] = h5py.ExternalLink(file.filename, "/")
                file["other"] = h5py.ExternalLink(file.filename, "/x")
            return put
        self.assertEqual(self.report(fill(1), fill(1), code=SAME)["notes"], [])
        self.assertEqual(self.kinds(fill(1), fill(2)), [("not_equal", "/other")])


class Virtual(FilesTest):
    def sides(self, put, file: str = "source.h5", name: str = "d") -> list:
        """Two virtual datasets in folders of their own; `put(folder)` makes what they are read from."""
        paths = []
        for side in "ab":
            folder = self.folder / side
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource(file, name, (4,))
            paths.append(self.write(f"{side}/main.h5", lambda made: made.create_virtual_dataset("v", layout, fillvalue=-1)))
            put(folder)
        return paths

    def source(self, folder, value=1.0):
        self.write(folder / "source.h5", {"d": np.full(4, value)})

    def test_it_is_compared_by_its_sources(self):
        self.report(*self.sides(self.source), code=SAME)
        paths = self.sides(lambda folder: self.source(folder, 1.0 if folder.name == "a" else 2.0))
        self.assertEqual(self.kinds(*paths), [("not_equal", "/v")])

    def test_fill_values_in_place_of_a_source_are_not_called_the_same(self):
        for put in (lambda folder: None, lambda folder: self.write(folder / "source.h5", {"other": 1})):
            report = self.report(*self.sides(put), code=DIFFERS)
            self.assertEqual([(entry["kind"], entry["path"]) for entry in report["findings"]], [("not_compared", "/v")])
            self.assertIn("source.h5:d is not there", report["findings"][0]["message"])
        # Nor through another virtual dataset.
        def inner(folder):
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource("none.h5", "d", (4,))
            self.write(folder / "source.h5", lambda file: file.create_virtual_dataset("d", layout))
        report = self.report(*self.sides(inner), code=DIFFERS)
        self.assertIn("source.h5:d: its source none.h5:d is not there", report["findings"][0]["message"])

    def test_a_source_that_cannot_be_read(self):
        def cut(folder):
            self.source(folder)
            os.truncate(folder / "source.h5", 100)
        self.assertIn("source.h5", self.run_diff(*self.sides(cut), code=TROUBLE))

    def test_a_source_in_the_file_itself_and_one_of_a_name_with_a_percent_sign(self):
        def put(folder):
            with h5py.File(folder / "main.h5", "r+") as file:
                file["d"] = np.full(4, ord(folder.name))
        self.assertEqual(self.kinds(*self.sides(put, file=".")), [("not_equal", "/d"), ("not_equal", "/v")])
        percent = lambda folder: self.write(folder / "100%.h5", {"d": np.full(4, 5.0)})
        self.report(*self.sides(percent, file="100%%.h5"), code=SAME)

    def test_sources_of_numbered_names(self):
        """Of which libhdf5 takes as many as there are."""
        def put(file):
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            space = h5py.h5s.create_simple((8,), (h5py.h5s.UNLIMITED,))
            space.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), stride=(4,), block=(4,))
            creation.set_virtual(space, b"part%b.h5", b"d", h5py.h5s.create_simple((4,)))
            h5py.h5d.create(file.id, b"v", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((8,), (h5py.h5s.UNLIMITED,)), creation)
        self.write("part0.h5", {"d": np.ones(4)})
        report = self.report(put, put, code=DIFFERS)
        self.assertEqual([(entry["kind"], entry["path"]) for entry in report["findings"]], [("not_compared", "/v")])
        self.assertIn("part%b.h5:d stands for numbered ones", report["findings"][0]["message"])


class RawFiles(FilesTest):
    def pair(self) -> list:
        paths = []
        for side, value in (("a", 1.0), ("b", 2.0)):
            (self.folder / side).mkdir()
            with contextlib.chdir(self.folder / side):
                with h5py.File("main.h5", "w") as file:
                    file.create_dataset("x", (4,), "f8", external=[("data.raw", 0, 32)])[:] = value
            paths.append(self.folder / side / "main.h5")
        return paths

    def test_they_are_looked_for_beside_the_file_wherever_the_program_runs(self):
        a, b = self.pair()
        for folder in (self.folder / "a", self.folder / "b", "/"):
            with self.subTest(folder=folder), contextlib.chdir(folder):
                report = self.report(a, b, code=DIFFERS)
                self.assertEqual(report["datasets"][0]["first"]["values"], "1 against 2")
                self.report(a, a, code=SAME)

    def test_one_that_is_not_there_is_not_zeros(self):
        a, b = self.pair()
        for path in (a, b):
            (path.parent / "data.raw").unlink()
        report = self.report(a, b, code=DIFFERS)
        self.assertEqual(report["findings"][0]["kind"], "not_compared")
        self.assertIn("a/data.raw, which is not there", report["findings"][0]["message"])


if __name__ == "__main__":
    unittest.main()
