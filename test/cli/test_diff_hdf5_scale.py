# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on two HDF5 files with very many objects, paths or elements that were never written."""
from __future__ import annotations

import ctypes
import random
import shutil
import unittest

import h5py
import numpy as np

from made_files import DIFFERS, SAME, FilesTest

FNM_NOESCAPE = 2
libc = ctypes.CDLL(None)


class Many(FilesTest):
    def twice(self, fill) -> tuple:
        a = self.write("a.h5", fill)
        return a, shutil.copy(a, self.folder / "b.h5")

    def test_sibling_groups(self):
        def fill(file):
            for at in range(10_000):
                file.create_group(f"g{at}")["d"] = 1.0
        _, peak = self.cost(*self.twice(fill), code=SAME)
        self.assertLess(peak, 64)

    def test_datasets_of_a_type_with_a_long_description(self):
        def fill(file):
            file["T"] = h5py.enum_dtype({f"name_number_{at}": at for at in range(1000)}, "i4")
            for at in range(3000):
                file.create_dataset(f"d{at}", (3,), file["T"])
        _, peak = self.cost(*self.twice(fill), code=SAME)
        self.assertLess(peak, 128)

    def test_a_deep_chain_of_groups(self):
        def fill(file):
            group = file
            for _ in range(3000):
                group = group.create_group("g")
            group["d"] = 1.0
        a, b = self.twice(fill)
        self.cost(a, b, code=SAME)
        self.cost(a, b, "--filter", "*/d", code=SAME)
        empty = self.write("empty.h5", {"x": 1})
        self.cost(a, empty, "--filter", "*/d", code=DIFFERS)


class Unwritten(FilesTest):
    elements = 2**33  # 32 GiB

    def fill(self, value=0.0, written=None, kind="f4", **options):
        def put(file):
            made = file.create_dataset("x", (self.elements,), kind, chunks=(2**18,), fillvalue=value, **options)
            if written is not None:
                made[0] = written
        return put

    def test_two_that_were_never_written_are_compared_by_their_fill_values(self):
        for options in ({}, {"compression": "gzip"}, {"kind": ">i8", "value": 3}):
            with self.subTest(options=options):
                a, b = self.write("a.h5", self.fill(**options)), self.write("b.h5", self.fill(**options))
                seconds, _ = self.cost(a, b, code=SAME)
                self.assertLess(seconds, 5)
        entry = self.report(self.fill(2.0), self.fill(3.0), code=DIFFERS)["datasets"][0]
        self.assertEqual((entry["elements"], entry["unequal"], entry["first"]), (
            self.elements, self.elements, {"index": "[0]", "values": "2 against 3"}))
        self.assertEqual((entry["relative_error"], entry["largest_error"]), (0.5, 1.0))
        self.assertEqual(sum(entry["ulp_histogram"]), self.elements)

    def test_what_was_written_still_counts(self):
        self.elements = 2**20
        self.assertEqual(self.kinds(self.fill(0.0), self.fill(0.0, written=1.0)), [("not_equal", "/x")])
        self.report(self.fill(0.0), self.fill(0.0, written=0.0), code=SAME)


class Filters(FilesTest):
    def test_they_select_as_fnmatch(self):
        """Globs that are put together at random, and the C library's own opinion of each path."""
        names = ["a", "b", "ab", "a/b", "b/a", "b/ab/a", "aab/b-b", "c/[", "c/]a", "c/a]", "c/!", "b/ba/*"]
        a = self.write("a.h5", {f"d/{name}" if name in ("a", "b", "c") else f"top/{name}": 1 for name in names})
        b = self.write("b.h5", {f"d/{name}" if name in ("a", "b", "c") else f"top/{name}": 2 for name in names})
        with h5py.File(a) as file:
            paths = []
            file.visititems(lambda name, item: paths.append("/" + name) if isinstance(item, h5py.Dataset) else None)
        pieces = ["*", "*", "?", "a", "b", "/", "[ab]", "[!a]", "[^b]", "[]a]", "[[]", "[a-c]", "[", "]", "[[:alpha:]]", "\\", "top", "/d/"]
        generator = random.Random(5)
        for _ in range(150):
            glob = "/" + "".join(generator.choice(pieces) for _ in range(generator.randint(1, 7)))
            if generator.random() < 0.3:
                glob = glob[1:]
            wanted = sorted(path for path in paths if libc.fnmatch(glob.encode(), path.encode(), FNM_NOESCAPE) == 0)
            if not wanted:
                continue
            with self.subTest(glob=glob):
                self.assertEqual(sorted(path for _, path in self.kinds(a, b, "--filter", glob)), wanted)

    def diamond(self, value):
        """2^40 paths lead to the dataset."""
        def put(file):
            group = file
            for _ in range(40):
                below = group.create_group("a")
                group["b"] = below
                group = below
            group["d"] = value
        return put

    def test_very_many_paths_to_one_object(self):
        a, b = self.write("a.h5", self.diamond(1)), self.write("b.h5", self.diamond(2))
        for glob in ("/a/*", "*", "*/b/d", "/b/a/b*/d"):
            with self.subTest(glob=glob):
                self.cost(a, a, "--filter", glob, code=SAME)
                self.assertTrue(all(libc.fnmatch(glob.encode(), path.encode(), FNM_NOESCAPE) == 0
                                    for _, path in self.kinds(a, b, "--filter", glob)))
        empty = self.write("empty.h5", {"x": 1})
        self.assertEqual({kind for kind, _ in self.kinds(a, empty, "--filter", "*/b/d")}, {"missing"})

    def test_paths_that_lead_through_a_circle(self):
        def fill(value):
            def put(file):
                file["g/x"] = value
                file["g/up"] = file["/"]
            return put
        self.assertEqual(self.kinds(fill(1), fill(2), "--filter", "/g/up/g/x"), [("not_equal", "/g/up/g/x")])
        self.assertEqual(self.kinds(fill(1), fill(2), "--filter", "*x"), [("not_equal", "/g/x")])


if __name__ == "__main__":
    unittest.main()
