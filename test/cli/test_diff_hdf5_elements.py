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


class Booleans(FilesTest):
    def enumeration(self, values, names, base):
        def put(file):
            kind = h5py.h5t.enum_create(base)
            for name, value in names.items():
                kind.enum_insert(name, value)
            made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((len(values),)))
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(values, base.dtype), mtype=kind)
        return put

    def test_they_are_compared_by_their_names(self):
        ours = {"x": np.array([True, False])}
        for base in (h5py.h5t.STD_U8LE, h5py.h5t.STD_I8LE, h5py.h5t.STD_I32LE, h5py.h5t.STD_U16BE):
            for names in ({b"FALSE": 0, b"TRUE": 1}, {b"TRUE": 1, b"FALSE": 0}, {b"TRUE": 3, b"FALSE": 2, b"MAYBE": 1}):
                with self.subTest(base=base.dtype, names=names):
                    same = [names[b"TRUE"], names[b"FALSE"]]
                    self.report(ours, self.enumeration(same, names, base), code=SAME)
                    self.report(self.enumeration(same, names, base), ours, code=SAME)
                    self.assertEqual(self.kinds(ours, self.enumeration(same[::-1], names, base)), [("not_equal", "/x")])


class Padding(FilesTest):
    def test_bytes_of_a_long_double_that_mean_nothing(self):
        one = np.array([1.5, 2.5], np.longdouble)
        if h5py.h5t.py_create(one.dtype).get_precision() == 8 * one.itemsize:
            self.skipTest("it has none here")
        other = one.copy()
        other.view("u1").reshape(2, -1)[:, 10:] = 7
        self.assertTrue((one == other).all())
        self.report({"x": one}, {"x": other}, code=SAME)
        changed = other.copy()
        changed.view("u1").reshape(2, -1)[1, 9] ^= 0x80  # the sign
        self.assertEqual(self.kinds({"x": one}, {"x": changed}), [("not_equal", "/x")])

    def test_integers_of_some_bits(self):
        def fill(base, values):
            def put(file):
                encoded = bytearray(base.encode())
                encoded[-4:] = struct.pack("<HH", 2, 12)  # 12 bits that begin at the third
                kind = h5py.h5t.decode(bytes(encoded))
                made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((len(values),)))
                made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(values, ">u2" if base.get_order() == h5py.h5t.ORDER_BE else "<u2"), mtype=kind)
            return put
        for base in (h5py.h5t.STD_U16LE, h5py.h5t.STD_U16BE, h5py.h5t.STD_B16LE, h5py.h5t.STD_B16BE):
            for bit in range(16):
                with self.subTest(base=base, bit=bit):
                    pair = fill(base, [0x1234]), fill(base, [0x1234 ^ 1 << bit])
                    self.report(*pair, code=DIFFERS if 2 <= bit < 14 else SAME)


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
