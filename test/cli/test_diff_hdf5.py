# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on two HDF5 files of anyone. What is expected is worked out with numpy."""
from __future__ import annotations

import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

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


class Objects(FilesTest):
    def test_what_only_one_file_has(self):
        def left(file):
            file["both"] = file["lost"] = 1
            file["folder/x"] = 1
        def right(file):
            file["both"] = file["new"] = 1
        self.assertEqual(self.kinds(left, right), [("missing", "/folder"), ("missing", "/lost"), ("unexpected", "/new")])

    def test_kinds_of_objects(self):
        self.assertEqual(self.kinds({"x": 1}, lambda f: f.create_group("x")), [("kind_differs", "/x")])

    def test_attributes(self):
        def file(values):
            def fill(file):
                file["x"] = 1
                for place, attributes in values.items():
                    file[place].attrs.update(attributes)
            return fill
        base = {"/": {"n": 3}, "x": {"unit": "m", "list": [1, 2, 3]}}
        self.report(file(base), file(base), code=SAME)
        self.report(file({"x": {"a": np.int32(5)}}), file({"x": {"a": np.int64(5)}}), code=SAME)
        for changed, kind in (({"/": {"n": 4}, "x": base["x"]}, "attribute_differs"),
                              ({"/": {"n": 3.0}, "x": base["x"]}, "attribute_differs"),
                              ({"/": base["/"], "x": {"unit": "mm", "list": [1, 2, 3]}}, "attribute_differs"),
                              ({"/": base["/"], "x": {"unit": "m", "list": [1, 2]}}, "attribute_differs"),
                              ({"/": base["/"], "x": {"list": [1, 2, 3]}}, "attribute_missing"),
                              ({"/": {"n": 3, "more": 1}, "x": base["x"]}, "attribute_unexpected")):
            with self.subTest(changed=changed):
                self.assertEqual([kind for kind, _ in self.kinds(file(base), file(changed))], [kind])

    def test_links_are_followed_and_cycles_end(self):
        target = self.write("target.h5", {"y": np.arange(4)})
        changed = self.write("changed.h5", {"y": np.arange(4) + 1})
        def linked(to):
            def fill(file):
                file["group/x"] = 1
                file["group/again"] = h5py.SoftLink("/group")
                file["group/up"] = file["/"]
                file["outside"] = h5py.ExternalLink(str(to), "/y")
            return fill
        self.report(linked(target), linked(target), code=SAME)
        self.assertEqual(self.kinds(linked(target), linked(changed)), [("not_equal", "/outside")])
        self.report(linked(target), linked(target), "--filter", "/outside", code=SAME)

    def test_a_link_to_a_file_beside_it(self):
        """The name in the link is relative to the file that has it, wherever the program runs."""
        self.write("target.h5", {"y": np.arange(40_000, dtype=f4)})
        report = self.report({"x": h5py.ExternalLink("target.h5", "/y")}, {"x": np.arange(40_000, dtype=f4)}, code=SAME)
        self.assertEqual(report["compared"]["bytes"], 160_000)

    def test_a_file_that_begins_with_something_else(self):
        path = self.folder / "block.h5"
        with h5py.File(path, "w", userblock_size=1024) as file:
            file["x"] = np.arange(4096.0)
        self.report(path, {"x": np.arange(4096.0)}, code=SAME)
        self.assertEqual(self.kinds(path, {"x": np.arange(4096.0) + 1}), [("not_equal", "/x")])

    def test_a_compressed_dataset_whose_chunks_are_damaged_is_trouble(self):
        a, b = (self.write(name, lambda f: f.create_dataset("x", data=np.arange(1000), chunks=(1000,), compression="gzip", fletcher32=True))
                for name in ("a.h5", "b.h5"))
        with h5py.File(b) as file:
            chunk = file["x"].id.get_chunk_info(0)
        with open(b, "r+b") as file:
            file.seek(chunk.byte_offset + chunk.size // 2)
            file.write(b"\xff\x00\xff")
        self.assertIn(str(b), self.run_diff(a, b, code=TROUBLE))

    def test_links_to_nothing(self):
        def dangling(to):
            def fill(file):
                file["x"] = h5py.SoftLink(to)
                file["y"] = 1
            return fill
        self.report(dangling("/no"), dangling("/no"), code=SAME)
        self.assertEqual(self.kinds(dangling("/no"), dangling("/none")), [("not_equal", "/x")])
        self.assertEqual(self.kinds(dangling("/y"), dangling("/no")), [("kind_differs", "/x")])

    def test_a_filter(self):
        self.report({"a/x": 1, "b/x": 1}, {"a/x": 1, "b/x": 2}, "--filter", "/a/*", code=SAME)
        self.assertEqual(self.kinds({"a/x": 1, "b/x": 1}, {"a/x": 1, "b/x": 2}, "--filter", "*/x"), [("not_equal", "/b/x")])
        self.report({"a": 1}, {"a": 1}, "--filter", "/b", code=TROUBLE)

    def test_a_filter_sees_every_path_of_an_object(self):
        def twice(value):
            def fill(file):
                file["a"] = value
                file["b"] = file["a"]
            return fill
        self.assertEqual(self.kinds(twice(1), twice(2), "--filter", "/b"), [("not_equal", "/b")])


class Contents(FilesTest):
    def pair(self, left, right, same: bool, **options):
        fill = lambda data: lambda file: file.create_dataset("x", data=data, **options)
        if same:
            return self.report(fill(left), fill(right), code=SAME)
        report = self.report(fill(left), fill(right), code=DIFFERS)
        return report["findings"][0]["message"]

    def test_texts(self):
        words = np.array(["one", "two"], object)
        self.pair(words, words, True)
        self.assertIn('at [1]: "two" against "three"', self.pair(words, np.array(["one", "three"], object), False))
        # The same text in another storage is the same text.
        self.report({"x": np.array([b"one", b"two"], "S8")}, {"x": words}, code=SAME)

    def test_compounds_by_the_names_of_their_members(self):
        one = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
        other = np.array([(2.5, 1), (4.5, 3)], [("b", "f8"), ("a", "i8")])
        self.report({"x": one}, {"x": other}, code=SAME)
        other["b"][1] = 4
        self.assertIn("{a: 3, b: 4.5} against", self.report({"x": one}, {"x": other}, code=DIFFERS)["findings"][0]["message"])

    def test_enumerations_by_their_names(self):
        kind = lambda names: h5py.enum_dtype(names, basetype="i1")
        def fill(names, value):
            return lambda file: file.create_dataset("x", data=np.array([value], "i1"), dtype=kind(names))
        self.report(fill({"RED": 0, "BLUE": 1}, 1), fill({"RED": 1, "BLUE": 2}, 2), code=SAME)
        message = self.report(fill({"RED": 0, "BLUE": 1}, 1), fill({"BLUE": 0, "RED": 1}, 1), code=DIFFERS)["findings"][0]["message"]
        self.assertIn("BLUE against RED", message)

    def test_lists(self):
        kind = h5py.vlen_dtype("i4")
        def fill(*lists):
            def put(file):
                made = file.create_dataset("x", (len(lists),), kind)
                for at, entry in enumerate(lists):
                    made[at] = entry
            return put
        self.report(fill([1, 2], []), fill([1, 2], []), code=SAME)
        self.assertEqual(self.kinds(fill([1, 2], [3]), fill([1, 2], [4])), [("not_equal", "/x")])
        self.assertEqual(self.kinds(fill([1, 2]), fill([1, 2, 3])), [("not_equal", "/x")])

    def test_references_by_what_they_refer_to(self):
        def fill(order, to):
            def put(file):
                for name in order:
                    file[name] = 1
                file.create_dataset("x", data=file[to].ref, dtype=h5py.ref_dtype)
            return put
        self.report(fill("ab", "a"), fill("ba", "a"), code=SAME)
        self.assertEqual(self.kinds(fill("ab", "a"), fill("ab", "b")), [("not_equal", "/x")])

    def test_region_references_are_not_called_equal(self):
        def fill(file):
            file["a"] = np.arange(9)
            file.create_dataset("x", data=file["a"].regionref[1:3], dtype=h5py.regionref_dtype)
        self.assertEqual(self.kinds(fill, fill), [("not_compared", "/x")])

    def test_booleans_arrays_opaque_and_bits(self):
        self.assertEqual(self.kinds({"x": np.array([True, False])}, {"x": np.array([True, True])}), [("not_equal", "/x")])
        rows = np.zeros(2, np.dtype(("f4", (3,)))).view()
        left = np.zeros(2, [("m", "f4", (2, 2))])
        right = left.copy()
        right["m"][1, 0, 1] = 1
        self.report({"x": left}, {"x": left}, code=SAME)
        self.assertEqual(self.kinds({"x": left}, {"x": right}), [("not_equal", "/x")])
        opaque = lambda text: np.array([np.void(text)])
        self.report({"x": opaque(b"abcd"), "y": rows}, {"x": opaque(b"abcd"), "y": rows}, code=SAME)
        self.assertEqual(self.kinds({"x": opaque(b"abcd")}, {"x": opaque(b"abce")}), [("not_equal", "/x")])

    def test_scalars_empty_and_null_datasets(self):
        for value in (1.5, np.zeros(0, f4), np.zeros((3, 0, 2)), h5py.Empty("f4"), "text", b"bytes"):
            with self.subTest(value=value):
                self.report({"x": value}, {"x": value}, code=SAME)
        self.assertIn("the first at []: 1.5 against 2.5", self.report({"x": 1.5}, {"x": 2.5}, code=DIFFERS)["findings"][0]["message"])

    def test_long_double_by_its_bytes(self):
        one = np.array([1, 2], np.longdouble)
        self.report({"x": one}, {"x": one}, code=SAME)
        self.assertEqual(self.kinds({"x": one}, {"x": one + 1}), [("not_equal", "/x")])


class Large(FilesTest):
    elements = 5 * 2**28  # 5 GiB of float32

    def peak(self, *arguments) -> tuple[int, int]:
        with subprocess.Popen([DIFF, *map(str, arguments)], stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_maxrss // 1024

    def test_a_chunked_dataset_of_5_gib_that_is_nearly_empty(self):
        def fill(value):
            def put(file):
                made = file.create_dataset("x", (self.elements,), "f4", chunks=(2**20,))
                made[self.elements - 3] = value
            return put
        a, b = self.write("a.h5", fill(1)), self.write("b.h5", fill(2))
        code, peak = self.peak(a, b)
        self.assertEqual(code, DIFFERS)
        self.assertLess(peak, 64)

    def test_a_contiguous_dataset_of_5_gib_with_holes(self):
        def fill(value):
            def put(file):
                creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
                made = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((self.elements,)), creation)
                h5py.Dataset(made)[self.elements - 3] = value
            return put
        a, b = self.write("a.h5", fill(1)), self.write("b.h5", fill(2))
        code, peak = self.peak(a, b)
        self.assertEqual(code, DIFFERS)
        self.assertLess(peak, 64)
        self.assertIn(f"1 of {self.elements} elements differ, the first at [{self.elements - 3}]", self.run_diff(a, b, code=DIFFERS))

    def test_a_dataset_that_was_never_written(self):
        def fill(value):
            return lambda file: file.create_dataset("x", (10_000_000,), "f4", fillvalue=value)
        self.report(fill(1), fill(1), code=SAME)
        self.assertEqual(self.kinds(fill(1), fill(2)), [("not_equal", "/x")])


class Trouble(FilesTest):
    def test_bad_input(self):
        good = self.write("good.h5", {"x": np.zeros(100_000)})
        cut = self.folder / "cut.h5"
        cut.write_bytes(good.read_bytes()[:5000])
        text = self.folder / "text.h5"
        text.write_text("no HDF5")
        for bad in (cut, text, self.folder / "none.h5", self.folder):
            with self.subTest(bad=bad):
                self.assertIn(str(bad), self.run_diff(good, bad, code=TROUBLE))
                self.run_diff(bad, good, code=TROUBLE)
        self.report(good, text, code=TROUBLE)

    def test_options_of_traces(self):
        good = self.write("good.h5", {"x": 1})
        for option in (["--iteration", "0"], ["--layout", "x"], ["--high", "x"], ["--limits", "x"], ["--bound", "sqrt"]):
            self.assertIn("is for traces", self.run_diff(good, good, *option, code=TROUBLE))

    def test_nothing_to_compare(self):
        self.report({}, {}, code=TROUBLE)

    def test_a_file_that_shrinks_while_it_is_read(self):
        """At many moments, so that some come after it was mapped."""
        values = np.zeros(2**24, f4)
        a, b = self.write("a.h5", {"x": values}), self.write("b.h5", {"x": values})
        seen = set()
        for attempt in range(40):
            shutil.copy(a, self.folder / "c.h5")
            process = subprocess.Popen([DIFF, a, self.folder / "c.h5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(0.002 * attempt)
            os.truncate(self.folder / "c.h5", 40_000)
            output, error = process.communicate(timeout=60)
            seen.add(process.returncode)
            self.assertIn(process.returncode, (SAME, TROUBLE), output + error)
        self.assertIn(TROUBLE, seen)


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
