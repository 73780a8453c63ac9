# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on two HDF5 files of anyone: numbers. What is expected is worked out with numpy."""
from __future__ import annotations

import math
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as xml

import h5py
import numpy as np

from made_files import DIFF, DIFFERS, SAME, FilesTest, f4


def spacing_bucket(reference: np.ndarray, error: np.ndarray) -> np.ndarray:
    """0: equal; k: the error is in [2^(k-1), 2^k) spacings of float32 at the reference."""
    ratio = np.abs(error) / np.spacing(np.abs(reference)).astype(np.float64)
    return np.where(error == 0, 0, np.maximum(np.floor(np.log2(np.where(ratio > 0, ratio, 1))) + 1, 1))


class Numbers(FilesTest):
    def check_against_numpy(self, left: np.ndarray, right: np.ndarray, entry: dict):
        reference, candidate = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
        error = candidate - reference
        self.assertEqual(entry["elements"], error.size)
        self.assertEqual(entry["unequal"], np.count_nonzero(error))
        expected = math.sqrt(math.fsum(error**2) / math.fsum(reference**2))
        self.assertAlmostEqual(entry["relative_error"] / expected, 1, delta=1e-12)
        worst = int(np.argmax(np.abs(error)))
        first = int(np.flatnonzero(error)[0])
        text = lambda at: "[" + ",".join(map(str, np.unravel_index(at, left.shape))) + "]"
        self.assertEqual(entry["largest_error"], abs(error[worst]))
        self.assertEqual(entry["largest"]["index"], text(worst))
        self.assertEqual(entry["first"]["index"], text(first))
        self.assertEqual(entry["first"]["values"], f"{reference[first]:.9g} against {candidate[first]:.9g}")
        if left.dtype == np.float32 and right.dtype == np.float32:
            counts = np.bincount(spacing_bucket(left.ravel(), error).astype(int), minlength=34)
            self.assertEqual(entry["ulp_histogram"], counts.tolist())

    def arrays(self, shape=(300, 1000), every=1):
        random = np.random.default_rng(3)
        left = random.standard_normal(shape).astype(f4)
        right = left.copy()
        flat = right.reshape(-1)
        flat[7::every] *= f4(1) + f4(1e-3) * random.standard_normal(flat[7::every].shape).astype(f4)
        return left, right

    def test_metrics_of_a_dense_and_of_a_rare_difference(self):
        for every in (1, 250_001):
            left, right = self.arrays((700, 1000), every)
            report = self.report({"x": left}, {"x": right}, code=DIFFERS)
            self.check_against_numpy(left, right, report["datasets"][0])

    def test_metrics_do_not_depend_on_how_a_dataset_is_stored(self):
        left, right = self.arrays((500, 600), 1013)
        stored = {
            "contiguous": dict(), "chunked": dict(chunks=(64, 100)), "one_row": dict(chunks=(1, 600)),
            "deflated": dict(chunks=(100, 77), compression="gzip"), "shuffled": dict(chunks=True, shuffle=True, fletcher32=True),
            "external": dict(external=[("data.bin", 0, h5py.h5f.UNLIMITED)]), "big_endian": dict(dtype=">f4"),
        }
        for one, other in [("contiguous", name) for name in stored] + [("deflated", "one_row"), ("big_endian", "big_endian")]:
            def write(name, array, how, file):
                options = dict(stored[how])
                if how == "external":
                    options["external"] = [(str(self.folder / name), 0, h5py.h5f.UNLIMITED)]
                file.create_dataset("x", data=array.astype(options.pop("dtype", "f4")), **options)
            for changed, code in ((left, SAME), (right, DIFFERS)):
                with self.subTest(one=one, other=other, code=code):
                    report = self.report(lambda file: write("a.bin", left, one, file),
                                         lambda file: write("b.bin", changed, other, file), code=code)
                    if code == DIFFERS:
                        self.check_against_numpy(left, right, report["datasets"][0])

    def test_metrics_of_a_dataset_that_is_read_in_many_boxes(self):
        """Boxes are narrower than rows: 100 x 3000 of 300 x 5000."""
        random = np.random.default_rng(5)
        left = random.standard_normal((300, 5000))
        for every in (1, 400_009):
            right = left.copy()
            right.reshape(-1)[11::every] *= 1.001
            chunked = lambda data: lambda file: file.create_dataset("x", data=data, chunks=(100, 3000))
            report = self.report(chunked(left), chunked(right), code=DIFFERS)
            self.check_against_numpy(left, right, report["datasets"][0])

    def test_the_number_of_threads_changes_no_bit(self):
        left, right = self.arrays((3000, 1000), 7)
        a, b = self.write("a.h5", {"x": left, "y": left}), self.write("b.h5", {"x": right, "y": right})
        every = set()
        for _ in range(3):
            every.add(self.run_diff(a, b, "--json", "-", code=DIFFERS))
            one = subprocess.run(["taskset", "-c", "0", DIFF, a, b, "--json", "-"], capture_output=True, text=True)
            every.add(one.stdout)
        every.add(self.run_diff(a, b, "--json", "-", "--no-mmap", code=DIFFERS))
        self.assertEqual(len(every), 1)

    def test_a_relative_limit(self):
        left, right = self.arrays()
        error = np.linalg.norm((right - left).astype(float)) / np.linalg.norm(left.astype(float))
        self.report({"x": left}, {"x": right}, "--rel", f"{error * 1.001}", code=SAME)
        self.assertEqual(self.kinds({"x": left}, {"x": right}, "--rel", f"{error * 0.999}"), [("over_limit", "/x")])
        # Integers must be equal all the same.
        self.assertEqual(self.kinds({"x": np.arange(5)}, {"x": np.arange(5) + 1}, "--rel", "1e9"), [("not_equal", "/x")])

    def test_limits_of_elements(self):
        left, right = self.arrays()
        left, right = left.astype(float), right.astype(float)
        relative, absolute = np.max(np.abs(right - left) / np.abs(left)), np.max(np.abs(right - left))
        for option, value in (("--max-rel", relative), ("--max-abs", absolute)):
            self.report({"x": left}, {"x": right}, option, repr(float(value)), code=SAME)
            self.assertEqual(self.kinds({"x": left}, {"x": right}, option, repr(float(value) * (1 - 1e-9))), [("over_limit", "/x")])
        # All that are given must hold.
        self.report({"x": left}, {"x": right}, "--rel", "1e9", "--max-rel", "1e9", "--max-abs", absolute * 0.9, code=DIFFERS)

    def test_one_far_element_is_within_a_limit_of_the_norm_only_and_it_is_said(self):
        left = np.linspace(1, 1000, 10000)
        right = left.copy()
        right[7] += 100
        text = self.run_diff(self.write("a.h5", {"x": left}), self.write("b.h5", {"x": right}), "--rel", "2e-3", code=SAME)
        self.assertIn("1 dataset not equal, the furthest /x: 1 of 10,000 elements", text)
        self.assertIn("largest error 100", text)
        self.assertEqual(self.kinds({"x": left}, {"x": right}, "--max-rel", "2e-3"), [("over_limit", "/x")])

    def test_an_element_without_a_reference_needs_an_absolute_limit(self):
        pair = {"x": np.zeros(3)}, {"x": np.array([0, 0, 1e-30])}
        self.report(*pair, "--max-rel", "1e9", code=DIFFERS)
        self.report(*pair, "--max-abs", "1e-29", code=SAME)

    def test_limits_hold_for_floating_attributes_too(self):
        def with_rate(rate):
            def fill(file):
                file["x"] = 1
                file.attrs["lr"] = rate
                file.attrs["steps"] = 5
            return fill
        self.report(with_rate(3e-4), with_rate(3.00000001e-4), "--max-rel", "1e-6", code=SAME)
        self.assertEqual(self.kinds(with_rate(3e-4), with_rate(3.00000001e-4), "--max-rel", "1e-10"), [("attribute_differs", "/")])

    def test_integers_of_all_sizes_are_exact(self):
        for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">u4", ">i8"):
            information = np.iinfo(dtype)
            left = np.array([information.min, 0, information.max - 1, information.max], dtype)
            right = left.copy()
            right[2] += 1
            with self.subTest(dtype=dtype):
                self.report({"x": left}, {"x": left}, code=SAME)
                entry = self.report({"x": left}, {"x": right}, code=DIFFERS)["datasets"][0]
                self.assertEqual((entry["unequal"], entry["first"]["index"]), (1, "[2]"))
                self.assertEqual(entry["first"]["values"], f"{information.max - 1} against {information.max}")

    def test_bfloat16_and_float8_as_segments_store_them(self):
        def custom(size, exponent, mantissa, bias):
            made = h5py.h5t.IEEE_F32LE.copy()
            made.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
            made.set_precision(8 * size)
            made.set_size(size)
            made.set_ebias(bias)
            return made
        values = np.array([1.0, -2.5, 0.15625, 3.0], f4)
        bits16 = (values.view(np.uint32) >> 16).astype(np.uint16)
        def put(file, kind, bits):
            space = h5py.h5s.create_simple(bits.shape)
            made = h5py.h5d.create(file.id, b"x", kind, space)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=kind)
        bf16 = custom(2, 8, 7, 127)
        other = bits16.copy()
        other[1] += 1  # -2.5 has a spacing of 2^-6
        entry = self.report(lambda f: put(f, bf16, bits16), lambda f: put(f, bf16, other), code=DIFFERS)["datasets"][0]
        self.assertEqual((entry["reference_type"], entry["largest_error"]), ("bfloat16", 2**-6))
        # Against float32 of the same values: compared as float32, and said so.
        report = self.report(lambda f: put(f, bf16, bits16), {"x": values}, code=SAME)
        self.assertEqual(report["notes"][0]["message"], "bfloat16 against float32, compared as float32")
        self.assertEqual(self.kinds(lambda f: put(f, bf16, bits16), {"x": values + f4(1e-6)}), [("not_equal", "/x")])
        e5m2 = custom(1, 5, 2, 15)
        entry = self.report(lambda f: put(f, e5m2, np.array([0x3c], np.uint8)),
                            lambda f: put(f, e5m2, np.array([0x3e], np.uint8)), code=DIFFERS)["datasets"][0]
        self.assertEqual(entry["first"]["values"], "1 against 1.5")


class FalsePassesOfH5diff(FilesTest):
    """h5diff 1.10 takes each of these pairs for equal (exit code 0)."""

    pairs = {
        "inf_of_the_other_sign": ({"x": np.array([1, np.inf], f4)}, {"x": np.array([1, -np.inf], f4)}, ["-p", "1e-3"], ["--rel", "1e-3"]),
        "inf_against_a_number": ({"x": np.array([1, np.inf], f4)}, {"x": np.array([1, 3], f4)}, ["-p", "1e-3"], ["--rel", "1e-3"]),
        "small_numbers": ({"x": np.array([1e-20], f4)}, {"x": np.array([2e-20], f4)}, ["-p", "1e-6"], ["--rel", "1e-6"]),
        "shapes": ({"x": np.zeros((2, 3))}, {"x": np.zeros((3, 2))}, [], []),
        "ranks": ({"x": np.zeros(6)}, {"x": np.zeros((3, 2))}, [], []),
        "types": ({"x": np.zeros(3, f4)}, {"x": np.zeros(3, "i4")}, [], []),
        "null_and_empty": ({"x": h5py.Empty("f4")}, {"x": np.zeros(0, f4)}, [], []),
        "null_and_zeros": ({"x": h5py.Empty("f4")}, {"x": np.zeros(2, f4)}, [], []),
        "members": ({"x": np.zeros(2, [("a", "i4"), ("b", "f4")])}, {"x": np.zeros(2, [("a", "i4"), ("c", "f4")])}, [], []),
        "text_lengths": ({"x": np.array(["ab"], "S2")}, {"x": np.array(["cd"], object)}, [], []),
    }

    def test_they_differ(self):
        for name, (left, right, _, options) in self.pairs.items():
            with self.subTest(name):
                self.kinds(left, right, *options)

    @unittest.skipUnless(shutil.which("h5diff"), "h5diff is not installed")
    def test_h5diff_lets_them_pass(self):
        version = subprocess.run(["h5diff", "--version"], capture_output=True, text=True).stdout
        if "1.10" not in version:
            self.skipTest(version)
        for name, (left, right, options, _) in self.pairs.items():
            paths = [self.write("a.h5", left), self.write("b.h5", right)]
            with self.subTest(name):
                self.assertEqual(subprocess.run(["h5diff", *options, *paths], capture_output=True).returncode, 0)


class SpecialValues(FilesTest):
    def test_nan_equals_nan_and_nothing_else(self):
        nan = np.array([np.nan, 1], f4)
        self.report({"x": nan}, {"x": nan}, code=SAME)
        self.assertEqual(self.kinds({"x": nan}, {"x": np.array([3, 1], f4)}, "--rel", "1e9"), [("nonfinite", "/x")])
        # Also where the rest is within the limit.
        left, right = np.ones(1000, f4), np.full(1000, 1.0001, f4)
        right[500] = np.nan
        self.assertEqual(self.kinds({"x": left}, {"x": right}, "--rel", "1e-3"), [("nonfinite", "/x")])
        other = np.array([0x7fc00001, 0x3f800000], np.uint32).view(f4)
        report = self.report({"x": nan}, {"x": other}, code=SAME)
        self.assertEqual([note["kind"] for note in report["notes"]], ["bits"])

    def test_minus_zero_equals_zero_and_it_is_said(self):
        a, b = self.write("a.h5", {"x": np.array([-0.0, 1, 0], f4)}), self.write("b.h5", {"x": np.array([0.0, 1, -0.0], f4)})
        self.assertIn("2 equal elements have other bits", self.run_diff(a, b, code=SAME))

    def test_a_zero_reference_has_no_relative_error(self):
        report = self.report({"x": np.zeros(3)}, {"x": np.array([0, 0, 1e-30])}, "--rel", "1e9", code=DIFFERS)
        self.assertIsNone(report["datasets"][0]["relative_error"])

    def test_squares_beyond_the_range_of_float64(self):
        for scale in (1e-200, 1e200):
            left = np.array([1, 2.0]) * scale
            self.assertEqual(self.kinds({"x": left}, {"x": left * 1.01}, "--rel", "1e-3"), [("over_limit", "/x")])
            self.report({"x": left}, {"x": left * 1.01}, "--rel", "0.011", code=SAME)


class Documents(FilesTest):
    def test_junit(self):
        a = self.write("a.h5", {"g/x": 1, "g/y": 1, "lost": 1})
        b = self.write("b.h5", {"g/x": 1, "g/y": 2})
        root = xml.fromstring(self.run_diff(a, b, "--junit", "-", code=DIFFERS))
        self.assertEqual({name: root.get(name) for name in ("tests", "failures", "errors", "skipped")},
                         {"tests": "3", "failures": "2", "errors": "0", "skipped": "0"})
        failed = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
        self.assertEqual(failed, {"/g/y", "/lost"})

    def test_quiet_and_text(self):
        a, b = self.write("a.h5", {"x": np.arange(4.0)}), self.write("b.h5", {"x": np.arange(4.0) + 0.5})
        self.assertEqual(self.run_diff(a, b, "-q", code=DIFFERS), "")
        self.assertTrue(self.run_diff(a, b, code=DIFFERS).startswith("differs: 1 difference in 1 dataset"))
        self.assertTrue(self.run_diff(a, a, code=SAME).startswith("same: 1 dataset"))


if __name__ == "__main__":
    unittest.main()
