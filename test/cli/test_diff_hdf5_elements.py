# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on two HDF5 files of anyone: references, booleans, padding, names for a terminal."""
from __future__ import annotations

import struct
import unittest

import h5py
import numpy as np

from made_files import DIFFERS, SAME, FilesTest


def refer(file: h5py.File, *objects, name: str = "r"):
    made = file.create_dataset(name, (len(objects),), h5py.ref_dtype)
    for at, target in enumerate(objects):
        if target is not None:
            made[at] = target.ref


class References(FilesTest):
    def test_the_same_object_by_other_names(self):
        """/a is a soft link here, a hard link there, and libhdf5 finds that one first."""
        def fill(hard, to="x"):
            def put(file):
                file["x"], file["y"] = 1.0, 1.0
                file["a"] = file["x"] if hard else h5py.SoftLink("/x")
                refer(file, file[to])
            return put
        for one in (False, True):
            for other in (False, True):
                self.report(fill(one), fill(other), code=SAME)
                self.assertEqual(self.kinds(fill(one), fill(other, "y")), [("not_equal", "/r")])

    def test_null_and_to_an_object_that_is_gone(self):
        def fill(kind):
            def put(file):
                file["x"], file["y"] = 1.0, 2.0
                refer(file, None if kind == "null" else file["y"])
                del file["y"]
            return put
        self.report(fill("null"), fill("null"), code=SAME)
        for pair in (("null", "gone"), ("gone", "null"), ("gone", "gone")):
            report = self.report(fill(pair[0]), fill(pair[1]), code=DIFFERS)
            texts = {"null": "-> nothing", "gone": "-> an object that is gone"}
            self.assertEqual(next(entry for entry in report["datasets"] if entry["path"] == "/r")["first"]["values"], f"{texts[pair[0]]} against {texts[pair[1]]}")

    def test_in_attributes_lists_compounds_and_of_another_file(self):
        def fill(to):
            def put(file):
                for name in ("x", "y"):
                    file[f"g/{name}"] = 1.0
                kind = np.dtype([("n", "i4"), ("r", h5py.ref_dtype)])
                file.create_dataset("compound", data=np.array([(1, file[to].ref)], kind))
                file.create_dataset("list", (1,), h5py.vlen_dtype(h5py.ref_dtype))[0] = np.array([file[to].ref], object)
                file["g"].attrs.create("a", file[to].ref, dtype=h5py.ref_dtype)
            return put
        wanted = [("attribute_differs", "/g"), ("not_equal", "/compound"), ("not_equal", "/list")]
        self.report(fill("g/x"), fill("g/x"), code=SAME)
        self.assertEqual(sorted(self.kinds(fill("g/x"), fill("g/y"))), wanted)
        for side, to in (("one", "g/x"), ("two", "g/y")):
            self.write(f"{side}.h5", fill(to))
        linked = lambda side: {"link": h5py.ExternalLink(f"{side}.h5", "/")}
        self.report(linked("one"), linked("one"), code=SAME)
        self.assertEqual(sorted(self.kinds(linked("one"), linked("two"))),
                         [("attribute_differs", "/link/g"), ("not_equal", "/link/compound"), ("not_equal", "/link/list")])

    def test_many(self):
        """libhdf5's own search takes 60 s for these."""
        count = 8000
        def fill(swapped):
            def put(file):
                group = file.create_group("targets")
                made = [group.create_dataset(f"{at}", data=1.0) for at in range(count)]
                if swapped:
                    made[7], made[8] = made[8], made[7]
                file.create_dataset("r", (count,), h5py.ref_dtype)[:] = [target.ref for target in made]
            return put
        a, b = self.write("a.h5", fill(False)), self.write("b.h5", fill(True))
        seconds, _ = self.cost(a, a, code=SAME)
        self.assertLess(seconds, 15)
        report = self.report(a, b, code=DIFFERS)
        self.assertEqual(report["datasets"][0]["unequal"], 2)
        self.assertEqual(report["datasets"][0]["first"]["values"], "-> /targets/7 against -> /targets/8")


class Names(FilesTest):
    def test_control_characters_do_not_reach_a_terminal(self):
        def fill(value):
            def put(file):
                file["\x1b[31mred\nline\x7f\u009b2J"] = value
                file.attrs["\x1b]0;title\x07"] = f"\x1b[2J{value}"
            return put
        text = self.run_diff(self.write("a.h5", fill(1)), self.write("b.h5", fill(2)), "-v", "--color", "never", code=DIFFERS)
        self.assertFalse([character for character in text if ord(character) < 32 and character != "\n" or 0x7f <= ord(character) < 0xa0])
        self.assertIn("/\\x1b[31mred\\nline\\x7f\\x9b2J: 1 of 1", text)
        self.assertIn("@\\x1b]0;title\\x07: \"\\x1b[2J1\" against", text)
        # Other letters stay as they are.
        text = self.run_diff(self.write("a.h5", {"Größe µ": 1}), self.write("b.h5", {"Größe µ": 2}), code=DIFFERS)
        self.assertIn("/Größe µ: 1 of 1", text)


if __name__ == "__main__":
    unittest.main()
