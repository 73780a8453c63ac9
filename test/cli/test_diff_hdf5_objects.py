# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on two HDF5 files of anyone: objects, elements that are no numbers, large and bad files."""
from __future__ import annotations

import os
import shutil
import subprocess
import time
import unittest

import h5py
import numpy as np

from made_files import DIFF, DIFFERS, SAME, TROUBLE, FilesTest, f4


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

    def test_a_filter_applies_to_what_only_one_file_has(self):
        one, more = {"a/x": 1}, {"a/x": 1, "b/c/x": 1, "b/y": 1}
        self.report(one, more, "--filter", "/a/*", code=SAME)
        self.assertEqual(self.kinds(one, more, "--filter", "*/y"), [("unexpected", "/b/y")])
        self.assertEqual(self.kinds(more, one, "--filter", "/b/*"), [("missing", "/b/c"), ("missing", "/b/y")])
        self.assertEqual(self.kinds({"b": 1, "a": 1}, more, "--filter", "*/x"), [("unexpected", "/a/x"), ("unexpected", "/b/c/x")])
        self.report(one, more, "--filter", "/nope/*", code=TROUBLE)
        self.assertEqual(self.report(one, more, "--filter", "/a/*", code=SAME)["filter"], "/a/*")

    def test_a_filter_of_libhdf5_that_is_not_there(self):
        def filled(file):
            file["first"] = 1
            file.create_dataset("packed", data=np.arange(1000.0), compression="lzf")
            file["second"] = 2
        plugins = {"HDF5_PLUGIN_PATH": str(self.folder)}
        a, b = self.write("a.h5", filled), self.write("b.h5", filled)
        done = subprocess.run([DIFF, a, b], capture_output=True, text=True, env={**os.environ, **plugins})
        self.assertEqual(done.returncode, DIFFERS, done.stdout + done.stderr)
        self.assertIn("/packed: its filter 32000 (lzf) is not to be found", done.stdout)
        self.assertIn("differs: 1 difference in 2 datasets", done.stdout)

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

    def test_compounds_that_are_stored_in_other_ways(self):
        fields = [("f", "<f8"), ("i", "<i4")]
        packed, aligned = np.zeros(1000, fields), np.zeros(1000, np.dtype(fields, align=True))
        self.report({"x": packed}, {"x": aligned}, code=SAME)
        aligned["f"][900:] = 5
        self.assertEqual(self.kinds({"x": packed}, {"x": aligned}), [("not_equal", "/x")])
        self.assertEqual(self.kinds({"x": aligned}, {"x": packed}), [("not_equal", "/x")])
        def swapped(offsets):
            return np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": offsets, "itemsize": 8})
        bytes_ = np.array([1, 2, 1, 2], "<i4").tobytes()
        self.assertEqual(self.kinds({"x": np.frombuffer(bytes_, swapped([0, 4]))}, {"x": np.frombuffer(bytes_, swapped([4, 0]))}),
                         [("not_equal", "/x")])

    def test_arrays_of_other_shapes(self):
        def array(shape):
            return {"x": np.zeros(3, np.dtype([("m", "<i4", shape)]))}
        self.assertEqual(self.kinds(array((2, 3)), array((3, 2))), [("dtype_differs", "/x")])

    def test_long_double_by_its_bytes(self):
        one = np.array([1, 2], np.longdouble)
        self.report({"x": one}, {"x": one}, code=SAME)
        self.assertEqual(self.kinds({"x": one}, {"x": one + 1}), [("not_equal", "/x")])


class Large(FilesTest):
    elements = 5 * 2**28  # 5 GiB of float32

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

    def test_a_column_of_which_each_element_is_a_run(self):
        def fill(value):
            def put(file):
                made = file.create_dataset("x", (2**22, 4), "u1", chunks=(2**22, 1))
                made[2**21, 2] = value
            return put
        a, b = self.write("a.h5", fill(1)), self.write("b.h5", fill(2))
        code, peak = self.peak(a, b)
        self.assertEqual(code, DIFFERS)
        self.assertLess(peak, 64)
        self.assertIn("the first at [2097152,2]: 1 against 2", self.run_diff(a, b, code=DIFFERS))

    def test_many_long_texts(self):
        texts = ["x" * 2000] * 50_000
        def put(file):
            file.create_dataset("x", data=texts, dtype=h5py.string_dtype())
        a, b = self.write("a.h5", put), self.write("b.h5", put)
        code, peak = self.peak(a, b)
        self.assertEqual(code, SAME)
        self.assertLess(peak, 96)

    def test_chunks_that_are_cut_in_other_ways(self):
        values = np.arange(600 * 700.0).reshape(600, 700)
        def cut(chunks, more):
            return lambda file: file.create_dataset("x", data=values + more, chunks=chunks, compression="gzip")
        self.report(cut((3, 700), 0), cut((600, 2), 0), code=SAME)
        report = self.report(cut((3, 700), 0), cut((600, 2), 1), code=DIFFERS)
        self.assertAlmostEqual(report["datasets"][0]["relative_error"],
                               np.sqrt(values.size) / np.linalg.norm(values), places=14)

    def test_a_dataset_that_was_never_written(self):
        def fill(value):
            return lambda file: file.create_dataset("x", (10_000_000,), "f4", fillvalue=value)
        self.report(fill(1), fill(1), code=SAME)
        self.assertEqual(self.kinds(fill(1), fill(2)), [("not_equal", "/x")])


class Trouble(FilesTest):
    def test_a_report_does_not_take_the_place_of_a_file(self):
        a, b = self.write("a.h5", {"x": 1}), self.write("b.h5", {"x": 2})
        for option in ("--json", "--junit"):
            self.assertIn("is one of the two", self.run_diff(a, b, option, b, code=TROUBLE))
        self.run_diff(a, b, code=DIFFERS)

    def test_a_pipe_is_trouble(self):
        os.mkfifo(self.folder / "pipe.h5")
        self.assertIn("no regular file", self.run_diff(self.folder / "pipe.h5", self.write("a.h5", {"x": 1}), code=TROUBLE))

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
        for option in (["--iteration", "0"], ["--layout", "x"], ["--high", "x"], ["--limits", "x"], ["--bound", "sqrt"], ["--no-trust-hash"]):
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


if __name__ == "__main__":
    unittest.main()
