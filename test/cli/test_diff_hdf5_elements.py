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
