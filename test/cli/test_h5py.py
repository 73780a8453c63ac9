# SPDX-License-Identifier: Apache-2.0
"""A segment read with h5py, as a user would: values, types, attributes and the index.

Everything expected here is computed with numpy (and python-xxhash, if it is installed) from the
rule by which test/libttrace/write_segment.cpp fills its tensors, not with our own reader.
"""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import xxhash
except ImportError:
    xxhash = None

TOOL = pathlib.Path(os.environ.get("TTRACE_BUILD", "build"), "test", "write_segment")
TYPES = ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8",
         "int16", "int32", "int64", "uint8", "bool"]
SIZES = dict(zip(TYPES, [8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 1]))
COLUMNS = [("module", "<i4"), ("slot", "<i4"), ("raw_name", "<i4"), ("phase", "u1"), ("dtype", "u1"),
           ("kind", "u1"), ("ndim", "u1"), ("microbatch", "<i4"), ("call", "<u4"), ("flags", "<u4"),
           ("layout", "<i4"), ("alias_of", "<i8"), ("shape", "<u8", (16,)), ("bytes", "<u8"),
           ("offset", "<u8"), ("hash_low", "<u8"), ("hash_high", "<u8"), ("sum_squares", "<f8"),
           ("min", "<f8"), ("max", "<f8"), ("nan_count", "<u8"), ("inf_count", "<u8")]


def codes(name: str, count: int) -> np.ndarray:
    """The bits of a tensor, as unsigned integers of its element size."""
    i = np.arange(count, dtype=np.uint64)
    if name == "bool":
        i = (i % np.uint64(3) == 0).astype(np.uint64)
    elif SIZES[name] > 2:
        i = i * np.uint64(0x9E3779B97F4A7C15)
    return i.astype(f"<u{SIZES[name]}")


def e4m3fn(code: int) -> float:
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * math.ldexp(mantissa + (8 if exponent else 0), max(exponent, 1) - 10)


def values(name: str, count: int) -> np.ndarray:
    """The values of a tensor, in a type of numpy that holds them exactly."""
    bits = codes(name, count)
    if name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if name == "float8_e5m2":
        return (bits.astype(np.uint16) << 8).view(np.float16)  # the upper half of a float16
    if name == "float8_e4m3fn":
        return np.array([e4m3fn(int(code)) for code in bits])
    return bits.view(name)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return np.array_equal(left.ravel(), right.ravel(), equal_nan=left.dtype.kind == "f")


class Segment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "it000007.h5")
        subprocess.run([TOOL, cls.path], check=True)
        cls.file = h5py.File(cls.path, "r")
        cls.index = cls.file["index"][:]

    @classmethod
    def tearDownClass(cls):
        cls.file.close()
        cls.folder.cleanup()

    def data(self, name: str):
        return self.file[f"data/mb0/forward/types.{name}/output.0"]

    def test_attributes(self):
        attributes = dict(self.file.attrs)
        hashed = attributes.pop("index_hash")
        self.assertEqual(attributes, {"format": "ttrace", "version": 1, "run_id": "0123abcd",
                                      "rank": 5, "iteration": 7, "complete": 1})
        self.assertRegex(hashed, "^[0-9a-f]{32}$")
        for name, kind in [("version", "int32"), ("rank", "int32"), ("iteration", "int64"),
                           ("complete", "int8")]:
            self.assertEqual(self.file.attrs[name].dtype, kind)

    def test_ieee_floats_and_integers_are_numpys(self):
        for name in TYPES:
            if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                continue
            with self.subTest(name):
                data = self.data(name)
                self.assertEqual(data.dtype, name)
                self.assertEqual(data.shape, (16, 16) if SIZES[name] == 1 else (256, 256))
                self.assertTrue(same(data[()], values(name, data.size)))

    def test_small_floats_read_as_the_next_larger_type(self):
        for name, read_as in [("bfloat16", "float32"), ("float8_e5m2", "float16")]:
            with self.subTest(name):
                data = self.data(name)
                self.assertEqual(data.dtype, read_as)
                self.assertTrue(same(data[()], values(name, data.size)))

    def test_e4m3fn_reads_as_codes_with_the_values_as_names(self):
        data = self.data("float8_e4m3fn")
        self.assertEqual(data.dtype, "uint8")
        self.assertTrue(same(data[()], codes("float8_e4m3fn", 256)))
        names = h5py.check_enum_dtype(data.dtype)
        self.assertEqual(len(names), 256)
        for text, code in names.items():
            want = e4m3fn(code)
            self.assertEqual(math.copysign(1, float(text)), -1 if code & 128 else 1)
            self.assertTrue(float(text) == want or math.isnan(want) and math.isnan(float(text)))
        committed = self.file["types/float8_e4m3fn"]
        self.assertEqual(committed.attrs["logical_dtype"], "float8_e4m3fn")

    def test_scalars_and_empty_tensors(self):
        scalar = self.file["data/grad/a%2Fb%231/reduced"]
        self.assertEqual((scalar.shape, scalar[()]), ((), 0.0))
        self.assertIsNone(self.file["data/grad/a%2Fb%231/clipped"].shape)  # a null dataspace

    def test_only_full_records_have_datasets(self):
        found = []
        self.file["data"].visititems(
            lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        self.assertEqual(len(found), 14)
        self.assertNotIn("mb3", self.file["data"])
        for name in found:
            self.assertIsNone(self.file["data"][name].chunks)
            self.assertEqual((self.file["data"][name].id.get_offset() or 0) % 64, 0)

    def test_index_columns(self):
        self.assertEqual(self.index.dtype, np.dtype(COLUMNS))
        self.assertEqual(len(self.index), 17)
        text = [name.decode() for name in self.file["names"][:]]
        self.assertEqual(len(text), len(set(text)))
        rows = self.index
        self.assertEqual([text[i] for i in rows["module"]],
                         [f"types.{name}" for name in TYPES] + ["a/b#1"] * 2 + ["@root"] * 3)
        self.assertEqual([text[i] for i in rows["slot"][-5:]],
                         ["reduced", "clipped", "input.tokens", "input.mask", "input.labels"])
        self.assertEqual([text[i] for i in rows["raw_name"][:12]],
                         [f"module.types.{name}" for name in TYPES])
        self.assertEqual(rows["raw_name"][12:].tolist(), [-1] * 5)
        self.assertEqual(rows["phase"].tolist(), [1] * 12 + [4, 4, 1, 1, 1])
        self.assertEqual(rows["dtype"].tolist(), list(range(12)) + [1] * 5)
        self.assertEqual(rows["kind"].tolist(), [0] * 15 + [1, 2])
        self.assertEqual(rows["ndim"].tolist(), [2] * 12 + [0, 2, 2, 2, 2])
        self.assertEqual(rows["microbatch"].tolist(), [0] * 12 + [-1, -1, 3, 3, 3])
        self.assertEqual(rows["call"].tolist(), [0] * 14 + [2] * 3)
        self.assertEqual(rows["flags"].tolist(), [0] * 12 + [9, 0, 0, 0, 0])
        self.assertEqual(rows["layout"].tolist(), [-1] * 12 + [0, 0] + [-1] * 3)
        self.assertEqual(rows["alias_of"].tolist(), [-1] * 14 + [1, -1, -1])
        self.assertEqual(rows["shape"][13].tolist(), [4] + [0] * 15)
        self.assertEqual([name.decode() for name in self.file["layouts"][:]],
                         ['{"dims":"h[tp] d"}'])

    def test_offsets_lead_to_the_bytes(self):
        raw = pathlib.Path(self.path).read_bytes()
        for row, name in zip(self.index, TYPES):
            count = int(np.prod(row["shape"][:row["ndim"]]))
            begin, size = int(row["offset"]), int(row["bytes"])
            self.assertEqual(begin, self.data(name).id.get_offset())
            self.assertEqual(raw[begin:begin + size], codes(name, count).tobytes())
        self.assertEqual(self.index["offset"][13:].tolist(), [0] * 4)

    def test_statistics(self):
        for row, name in zip(self.index, TYPES):
            with self.subTest(name):
                count = int(np.prod(row["shape"][:row["ndim"]]))
                with np.errstate(invalid="ignore"):  # signalling NaN
                    exact = values(name, count).astype(np.float64)
                finite = exact[np.isfinite(exact)]
                self.assertEqual(row["nan_count"], np.isnan(exact).sum())
                self.assertEqual(row["inf_count"], np.isinf(exact).sum())
                self.assertEqual((row["min"], row["max"]), (finite.min(), finite.max()))
                with np.errstate(over="ignore"):
                    squares = float(np.sum(finite * finite))
                self.assertTrue(math.isclose(row["sum_squares"], squares, rel_tol=1e-12))
        fields = ["sum_squares", "min", "max", "nan_count", "inf_count", "hash_low", "hash_high"]
        for other in (14, 15):  # an alias and a record of statistics, of the same values
            self.assertEqual(self.index[other][fields], self.index[1][fields])
        self.assertEqual(list(self.index[16][fields[:5]].item()), [0] * 5)

    @unittest.skipUnless(xxhash, "python-xxhash is not installed")
    def test_hashes(self):
        for row, name in zip(self.index, TYPES):
            count = int(np.prod(row["shape"][:row["ndim"]]))
            want = xxhash.xxh3_128_intdigest(codes(name, count).tobytes())
            self.assertEqual((int(row["hash_high"]) << 64) + int(row["hash_low"]), want)
        self.assertEqual(int(self.index[16]["hash_low"]), int(self.index[1]["hash_low"]))
        guarded = self.index.tobytes() + b"".join(
            text + b"\0" for dataset in ("names", "layouts") for text in self.file[dataset][:])
        self.assertEqual(self.file.attrs["index_hash"], xxhash.xxh3_128_hexdigest(guarded))


if __name__ == "__main__":
    unittest.main()
