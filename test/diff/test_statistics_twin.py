# SPDX-License-Identifier: Apache-2.0
"""The statistics of a tensor against a twin in numpy; healthy noise passes, and each kind of bug
is flagged by the statistic that is meant for it while the norm of the error is still healthy.
"""
from __future__ import annotations

import itertools
import pathlib
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from statistics_twin import EPSILON, Case, Store, Twin, run  # noqa: E402


def structured(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Normal values whose rows and columns have different sizes."""
    values = rng.standard_normal(shape)
    if len(shape) > 1:
        values *= np.exp(0.3 * rng.standard_normal(shape[-1]))
        values *= np.exp(0.3 * rng.standard_normal(shape[:-1]))[..., None]
    return values


def higher(dtype: str) -> str:
    return "float64" if dtype == "float32" else "float32"


class StatisticsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ttrace-statistics-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.store = Store(self.folder)

    def rounded(self, rng, truth: np.ndarray, dtype: str) -> np.ndarray:
        """What a kernel of that type makes of the truth. In float32 sums round often, in bfloat16
        they are rounded once, from float32."""
        size = EPSILON[dtype] * {"bfloat16": 0.3, "float32": 4}[dtype]
        return truth + size * np.abs(truth) * rng.uniform(-1, 1, truth.shape)

    def make(self, seed: int, shape: tuple, dtype: str = "bfloat16", noises: int = 1, dim: int = 0,
             ranks: int = 1, bug=None, **more) -> Case:
        """`bug` changes what the candidate computes before it is rounded."""
        rng = np.random.default_rng(seed)
        truth = structured(rng, shape)
        computed = self.rounded(rng, truth, dtype)
        if bug:
            bug(computed)
        return Case(self.store.whole(truth, higher(dtype)),
                    self.store.cut(computed, dtype, dim, ranks, more.pop("zigzag", False)),
                    [self.store.whole(self.rounded(rng, truth, dtype), dtype)
                     for _ in range(noises)],
                    EPSILON[dtype], **more)

    def check(self, case: Case, found: dict) -> Twin:
        twin = Twin(case)
        self.assertEqual((found["equal"], found["nonfinite_mismatch"], found["elements"]),
                         (twin.equal, twin.nonfinite_mismatch, twin.count))
        self.assertEqual(set(found["all"]), set(twin.all))
        for kind, (value, limit, where) in twin.all.items():
            with self.subTest(kind=kind):
                self.close(found["all"][kind]["value"], value)
                self.close(found["all"][kind]["limit"], limit)
                self.close(found["all"][kind]["score"], twin.score(kind))
                if value > 0:
                    self.assertEqual(found["all"][kind]["where"], where)
        worst = max(twin.all, key=twin.score)
        self.close(twin.score(found["decided"]), twin.score(worst))
        self.close(found["sigma"], twin.sigma)
        self.close(found["nu"], twin.nu)
        if not twin.equal and twin.count:
            self.close(found["factor"], twin.factor)
            self.close(found["factor_error"], twin.factor_error)
            expected = twin.resolution()
            for kind, value in found["resolution"].items():
                self.assertEqual(value is None, expected.get(kind) is None, kind)
                if value is not None:
                    self.close(value, expected[kind])
        return twin

    def close(self, found: float, expected: float):
        self.assertTrue(abs(found - expected) <= 1e-9 * abs(expected) + 1e-15,
                        f"{found} is not {expected}")

    def check_all(self, cases: list) -> list:
        results = run(self.folder, cases)["results"]
        self.assertEqual(len(results), len(cases))
        for i, (case, found) in enumerate(zip(cases, results)):
            with self.subTest(case=i, shape=case.reference.values.shape):
                self.check(case, found)
        return results


class AgainstTheTwin(StatisticsTest):
    def test_shapes_types_classes_and_methods(self):
        shapes = [(), (7,), (200,), (1, 96), (80, 1), (80, 24), (16, 136), (4, 8), (6, 20, 64),
                  (3, 5, 2, 70), (70, 70)]
        cases, seed = [], 0
        for shape, dtype, (noises, method) in itertools.product(
                shapes, ["bfloat16", "float32"], [(1, "local"), (3, "local"), (8, "envelope"),
                                                  (2, "envelope")]):
            seed += 1
            tensor = ["ordinary", "parameter", "softmax_backward"][seed % 3]
            floor = EPSILON[dtype] * (seed % 2)
            cases.append(self.make(seed, shape, dtype, noises, method=method, tensor=tensor,
                                   floor=floor, gain=[1.0, 1.5][seed % 2]))
        self.check_all(cases)

    def test_shards_are_the_ranks_own_parts(self):
        cases = []
        for seed, (shape, dim, ranks, zigzag) in enumerate([
                ((96,), 0, 4, False), ((64, 40), 0, 2, False), ((64, 40), 1, 4, False),
                ((64, 40), 0, 4, True), ((8, 6, 128), 2, 4, False), ((8, 6, 128), 0, 2, True),
                ((8, 6, 128), 1, 2, False), ((12, 8, 16), 2, 8, False)]):
            for bug in (None, lambda values: values.__imul__(1.5)):
                cases.append(self.make(seed, shape, "bfloat16", 1 + seed % 2, dim, ranks, bug,
                                       zigzag=zigzag))
        results = self.check_all(cases)
        self.assertTrue(results[0]["all"]["shard"]["where"].startswith("rank "))

    def test_every_floating_type(self):
        cases = []
        for dtype in EPSILON:
            rng = np.random.default_rng(11)
            truth = structured(rng, (48, 72))
            other = truth * (1 + 0.5 * EPSILON[dtype] * rng.uniform(-1, 1, truth.shape))
            noise = [self.store.whole(other, dtype)]
            cases.append(Case(self.store.whole(truth, dtype if dtype == "float64" else "float32"),
                              self.store.cut(truth * (1 + EPSILON[dtype] * rng.uniform(-1, 1)),
                                             dtype, 1, 2), noise, EPSILON[dtype]))
        self.check_all(cases)

    def test_a_scale_multiplies_the_candidate(self):
        twice = self.make(3, (64, 80), bug=lambda values: values.__imul__(2.0), scale=0.5)
        found = self.check_all([twice])[0]
        self.assertFalse(found["differs"])
        self.assertLess(abs(found["factor"] - 1), 1e-3)

    def test_addends_are_added(self):
        rng = np.random.default_rng(5)
        truth, share = structured(rng, (40, 72)), structured(rng, (40, 72))
        noise = [self.store.whole(self.rounded(rng, truth, "bfloat16"), "bfloat16")]
        candidate = self.store.addends([share, truth - share], "bfloat16")
        reference = self.store.addends([truth - 1, np.ones_like(truth)], "float32")
        self.check_all([Case(self.store.whole(truth, "float32"), candidate, noise, 2.0 ** -7),
                        Case(reference, self.store.whole(truth, "bfloat16"), noise, 2.0 ** -7)])

    def test_long_axes_are_grouped(self):
        shapes = [(70000, 3), (2, 140000), (66, 65537)]
        cases = [self.make(seed, shape, ranks=2 if shape[1] % 2 == 0 else 1, dim=1)
                 for seed, shape in enumerate(shapes)]
        results = self.check_all(cases)
        self.assertRegex(results[0]["all"]["row"]["where"], r"^rows \d+-\d+$")
        self.assertRegex(results[1]["all"]["column"]["where"], r"^columns \d+-\d+$")

    def test_extra_noise_belongs_to_groups_of_columns(self):
        case = self.make(8, (5, 4, 32), noises=2)
        rng = np.random.default_rng(9)
        case.extra = (8, (0.02 * rng.uniform(0, 1, (20, 4))) ** 2)
        self.check_all([case])

    def test_what_is_not_finite(self):
        def spoil(values, *places):
            for at, value in places:
                values.flat[at] = value
        rng = np.random.default_rng(4)
        truth = structured(rng, (70, 66))
        spoilt = truth.copy()
        spoil(spoilt, (3, np.nan), (100, np.inf), (66 * 5 + 1, -np.inf))
        spoilt[7] = np.nan
        candidate = self.rounded(rng, spoilt, "bfloat16")
        noise = self.rounded(rng, truth, "bfloat16")
        noise.flat[9] = np.inf
        other = candidate.copy()
        spoil(other, (100, -np.inf))
        more = candidate.copy()
        spoil(more, (2000, np.nan))
        stored = self.store.whole(spoilt, "float32"), [self.store.whole(noise, "bfloat16")]
        cases = [Case(stored[0], self.store.cut(values, "bfloat16", 1, 2), stored[1], 2.0 ** -7)
                 for values in (candidate, other, more)]
        cases.append(Case(stored[0], stored[0], stored[1], 2.0 ** -7))
        nothing = self.store.whole(np.full((2, 3), np.nan), "float32")
        cases.append(Case(nothing, nothing, [nothing], 2.0 ** -7))
        cases.append(Case(nothing, self.store.whole(np.ones((2, 3)), "float32"), [nothing], 1e-7))
        results = self.check_all(cases)
        self.assertEqual([found["differs"] for found in results],
                         [False, True, True, False, False, True])
        self.assertEqual([found["equal"] for found in results],
                         [False, False, False, True, True, False])
        self.assertEqual(results[0]["elements"], 70 * 66 - 3 - 66)

    def test_equal_tensors_are_equal_and_have_a_resolution(self):
        rng = np.random.default_rng(6)
        truth = structured(rng, (64, 128))
        stored = self.store.whole(truth, "bfloat16")
        noise = [self.store.whole(self.rounded(rng, truth, "bfloat16"), "bfloat16")]
        case = Case(stored, self.store.cut(truth, "bfloat16", 1, 4), noise, 2.0 ** -7)
        found = self.check_all([case])[0]
        self.assertTrue(found["equal"])
        self.assertEqual(found["decided"], "norm")
        self.assertLess(found["resolution"]["norm"], 0.02)
        self.assertLess(found["resolution"]["factor"], 0.02)
        self.assertLess(found["resolution"]["shard"], 0.02)
        # Of the element's only a bound is known; it is above what the elements themselves say.
        other = self.make(6, (64, 128))
        self.assertGreater(found["resolution"]["element"],
                           run(self.folder, [other])["results"][0]["resolution"]["element"])

    def test_zero_and_empty_tensors(self):
        zero = self.store.whole(np.zeros((40, 8)), "float32")
        one = np.zeros((40, 8))
        one[3, 2] = 1e-30
        empty = self.store.whole(np.zeros((0, 8)), "float32")
        results = self.check_all([
            Case(zero, zero, [zero], 2.0 ** -7),
            Case(zero, self.store.whole(one, "float32"), [zero], 2.0 ** -7),
            Case(zero, self.store.whole(one, "float32"), [zero], 2.0 ** -7, floor=1e-28),
            Case(empty, empty, [empty], 2.0 ** -7)])
        self.assertEqual([found["differs"] for found in results], [False, True, False, False])

    def test_memory_does_not_grow_with_the_tensor(self):
        rng = np.random.default_rng(7)
        name = self.store._file(rng.standard_normal(1 << 18).astype(np.float32))
        mebibytes = 128
        tensor = {"dtype": "float32", "dims": "- -", "shards": [
            {"shape": [mebibytes * 64, 4096], "file": name, "repeat": mebibytes}]}
        done = run(self.folder, [{"shape": [mebibytes * 64, 4096], "reference": tensor,
                                  "candidate": tensor, "noise": [tensor], "scale": 1.001,
                                  "epsilon": 2.0 ** -7}])
        self.assertEqual(done["results"][0]["elements"], mebibytes << 18)
        self.assertAlmostEqual(done["results"][0]["error"], 1e-3, delta=1e-9)
        self.assertLess(done["peak_kb"], 100 << 10)


class Verdicts(StatisticsTest):
    SHAPE = (256, 512)

    def found(self, *arguments, **more) -> dict:
        case = self.make(*arguments, **more)
        return self.check_all([case])[0]

    def check_bug(self, kind: str, where: str, bug, shape: tuple = SHAPE, **more):
        """Flagged by `kind`, more clearly than by any other, and not by the norm. `bug` is told how
        large noise is relative to a value, times how wide the limits of the type are."""
        for dtype, sigma in (("bfloat16", 0.27 * 2.0 ** -7), ("float32", 1.5 * 2.3 * 2.0 ** -23)):
            with self.subTest(dtype=dtype):
                found = self.found(21, shape, dtype, bug=lambda values: bug(values, sigma), **more)
                self.assertEqual(found["decided"], kind, found["all"])
                self.assertGreater(found["all"][kind]["score"], 1)
                self.assertLess(found["all"]["norm"]["score"], 1)
                self.assertEqual(found["all"][kind]["where"], where)

    @staticmethod
    def signs(values: np.ndarray) -> np.ndarray:
        return np.random.default_rng(1).choice([-1.0, 1.0], values.shape)

    def test_a_factor(self):
        def bug(values, sigma):
            values *= 1 + 1.2 * sigma
        self.check_bug("scale", "", bug)

    def test_a_factor_is_measured(self):
        found = self.found(22, self.SHAPE, bug=lambda values: values.__imul__(1 + 2.0 ** -8))
        self.assertLess(abs(found["factor"] - 1 - 2.0 ** -8), 4 * found["factor_error"])
        self.assertLess(found["factor_error"], 2.0 ** -14)

    def test_a_factor_on_one_rank(self):
        def bug(values, sigma):
            values[:, 2 * 64:3 * 64] *= 1 + 2 * sigma
        self.check_bug("shard_scale", "rank 2", bug, dim=1, ranks=8)

    def test_one_rank(self):
        def bug(values, sigma):
            part = values[5 * 1024:6 * 1024]
            part += 5.5 * sigma * np.abs(part) * self.signs(part)
        self.check_bug("shard", "rank 5", bug, (8192,), ranks=8)
        self.check_bug("shard", "slice 6 of 8", bug, (8192,))

    def test_one_row(self):
        def bug(values, sigma):
            values[17] += 10 * sigma * np.sqrt(np.mean(values[17] ** 2)) * self.signs(values[17])
        self.check_bug("row", "row 17", bug)

    def test_one_column(self):
        def bug(values, sigma):
            values[:, 300] += (10 * sigma * np.sqrt(np.mean(values[:, 300] ** 2)) *
                               self.signs(values[:, 300]))
        self.check_bug("column", "column 300", bug)

    def test_one_element(self):
        def bug(values, sigma):
            values[40, 7] += 60 * sigma
        self.check_bug("element", f"element {40 * 512 + 7}", bug)

    def test_an_offset_of_one_column(self):
        def bug(values, sigma):
            values[:, 11] += 1.2 * sigma
        self.check_bug("column_mean", "column 11", bug)

    def test_rows_of_a_parameters_gradient_that_must_be_zero(self):
        rng = np.random.default_rng(30)
        truth = structured(rng, (64, 32))
        truth[[3, 9]] = 0
        stored = self.store.whole(truth, "float32")
        noise = [self.store.whole(self.rounded(rng, truth, "bfloat16"), "bfloat16")]
        wrong = self.rounded(rng, truth, "bfloat16")
        wrong[9, 4] = 1e-20
        cases = [Case(stored, self.store.whole(wrong, "bfloat16"), noise, 2.0 ** -7, tensor=name)
                 for name in ("parameter", "ordinary")]
        results = self.check_all(cases)
        self.assertEqual(results[0]["decided"], "zero_row")
        self.assertEqual(results[0]["all"]["zero_row"]["where"], "row 9")
        self.assertEqual([found["differs"] for found in results], [True, False])

    def test_a_gradient_that_cancels_needs_its_floor(self):
        rng = np.random.default_rng(31)
        terms = 1.0  # size of what the gradient sums
        values = [2.0 ** -7 * terms * rng.standard_normal(96) / 96 ** 0.5 * size
                  for size in (0.01, 0.2, 0.004)]
        stored = [self.store.whole(value, "float32") for value in values]
        cases = [Case(stored[0], stored[1], [stored[2]], 2.0 ** -7, floor=floor,
                      tensor="parameter") for floor in (0.0, 0.22 * 2.0 ** -7 * terms)]
        results = self.check_all(cases)
        self.assertEqual([found["differs"] for found in results], [True, False])
        self.assertEqual([found["rounding_only"] for found in results], [False, True])

    def test_a_gain_widens_norms(self):
        def bug(values):
            values += 2.6 * 0.3 * 2.0 ** -7 * np.abs(values) * self.signs(values)
        plain = self.found(32, self.SHAPE, bug=bug)
        summed = self.found(32, self.SHAPE, bug=bug, gain=3.0 ** 0.5)
        self.assertGreater(plain["all"]["norm"]["value"], 1.5)
        self.close(plain["all"]["norm"]["value"], 3.0 ** 0.5 * summed["all"]["norm"]["value"])

    def test_a_factor_against_an_ensemble(self):
        bug = lambda values: values.__imul__(1 + 2.0 ** -9)
        found = self.found(33, self.SHAPE, noises=8, method="envelope", bug=bug)
        self.assertEqual(found["decided"], "ensemble_scale")
        self.assertTrue(found["differs"])
        few = self.found(33, self.SHAPE, noises=3, method="envelope", bug=bug)
        self.assertNotIn("ensemble_scale", few["all"])
        self.assertIsNone(few["resolution"]["factor"])

    def test_healthy_noise_passes(self):
        shapes = [(1,), (40,), (300,), (20, 20), (64, 96), (200, 24), (8, 4, 64), (32, 4, 160)]
        cases = []
        for seed in range(160):
            shape = shapes[seed % len(shapes)]
            dtype = ["bfloat16", "float32"][seed // len(shapes) % 2]
            ranks = 2 if shape[-1] % 2 == 0 and seed % 3 == 0 else 1
            cases.append(self.make(1000 + seed, shape, dtype, 1 + seed % 3,
                                   dim=len(shape) - 1, ranks=ranks))
        results = self.check_all(cases)
        flagged = [(case.reference.values.shape, found["decided"], found["all"][found["decided"]])
                   for case, found in zip(cases, results) if found["differs"]]
        self.assertEqual(flagged, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
