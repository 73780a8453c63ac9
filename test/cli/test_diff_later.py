# SPDX-License-Identifier: Apache-2.0
"""Iterations after the judged one: drift is information, a tensor that is another one is said."""
from __future__ import annotations

import copy
import json
import unittest

import numpy

from made_traces import DIFFERS, SAME, TROUBLE, DiffTest, rank_json, single, step, values, with_error

GRADIENT = "it1/grad/layers.1.fc.weight/reduced"
OUTPUT = "it1/mb0/forward/layers.1.fc/output.0"
LOSS = "it1/mb0/forward/@root/output.0"
WEIGHT = "it1/param/layers.0.fc.weight/value"


def second(change=lambda all: None) -> list[dict]:
    """The step once more, as iteration 1, after `change(records by key)`."""
    records = {entry["key"]: entry for entry in
               json.loads(json.dumps(step()).replace("it0/", "it1/"))}
    change(records)
    return list(records.values())


class LaterTest(DiffTest):
    def setUp(self):
        super().setUp()
        self.reference = self.two("reference.trace", second())

    def two(self, name: str, later: list[dict]):
        return self.write_ranks(name, [{"rank": 0, "rank_json": rank_json(), "segments": [
            {"iteration": 0, "records": step()}, {"iteration": 1, "records": later}]}])

    def candidate(self, change):
        return self.two("candidate.trace", second(change))

    def suspicious(self, change) -> dict | None:
        report = self.report(self.reference, self.candidate(change), code=SAME)
        self.assertEqual((report["verdict"], report["iterations"]), ("same", [0]))
        return report["later_iterations"][0]["suspicious"]

    @staticmethod
    def off(relative: float, matching=""):
        def change(all):
            for key, entry in all.items():
                if entry["dtype"] == "float32" and matching in key:
                    entry["values"] = with_error(entry["values"], relative)
        return change

    @staticmethod
    def stale(all):
        """The gradient of the iteration before, where parameters have drifted by round-off."""
        LaterTest.off(3e-8, "/param/")(all)
        LaterTest.off(2e-7, "/forward/layers")(all)
        all[GRADIENT]["values"] = values(7, 24)


class Later(LaterTest):
    def test_a_stale_gradient(self):
        found = self.suspicious(self.stale)
        wrong, right = (numpy.array(values(seed, 24)) for seed in (7, 402))
        error = numpy.linalg.norm(wrong - right) / numpy.linalg.norm(right)
        self.assertEqual((found["key"], found["phase"]), (GRADIENT, "grad"))
        self.assertAlmostEqual(found["error"], error, places=5)
        # Of the last block, which is the first in backward order; a floor adds a little.
        self.assertAlmostEqual(found["score"] / (error / (13 * 2**-23)), 1, delta=0.01)
        # The parameters together, 5 outputs, 4 gradients of outputs and that of the head's weight.
        self.assertEqual(found["before"]["tensors"], 11)
        self.assertLess(found["before"]["largest_error"], 1e-6)

        text = self.diff(self.reference, self.folder / "candidate.trace", code=SAME).stdout
        lines = text.splitlines()
        self.assertTrue(lines[0].startswith("suspicious: iteration 1, which is not judged"), text)
        self.assertIn("`layers.1.fc.weight` (Linear, model.py:12)", lines[0])
        self.assertIn(GRADIENT, lines[0])
        self.assertIn("--iteration 1 --rel 0.01, or ttrace-verify --iterations 0-1", lines[1])
        self.assertTrue(lines[2].startswith("same, up to round-off, in iteration 0: 22 of 22"), text)
        report = self.report(self.reference, self.folder / "candidate.trace", "--iteration", "1",
                             "--rel", "0.01", code=DIFFERS)
        self.assertEqual(report["first"]["key"], GRADIENT)

    def test_a_number_that_is_none(self):
        found = self.suspicious(lambda all: all[GRADIENT]["values"].__setitem__(3, "nan"))
        self.assertEqual((found["key"], found["error"]), (GRADIENT, 1e12))
        text = self.diff(self.reference, self.folder / "candidate.trace", code=SAME).stdout
        self.assertIn("NaN or Inf on one side only", text.splitlines()[0])

    def test_drift_is_none(self):
        for relative in (1e-7, 1e-4, 1e-2):
            with self.subTest(relative):
                self.assertIsNone(self.suspicious(self.off(relative)))

    def test_what_drift_may_have_made_wrong(self):
        def change(all):
            self.off(3e-3, OUTPUT)(all)
            all[GRADIENT]["values"] = values(7, 24)
        self.assertIsNone(self.suspicious(change))

    def test_half_of_a_tensor_is_another_matter(self):
        def change(all):
            all[GRADIENT]["values"] = [1.4 * value for value in all[GRADIENT]["values"]]
        self.assertIsNone(self.suspicious(change))

    def test_an_output_counts_where_the_result_is_wrong_as_well(self):
        def change(all):
            all[OUTPUT]["values"] = values(7, 48)
        self.assertIsNone(self.suspicious(change))

        def both(all):
            change(all)
            all[LOSS]["values"] = [3.0]
        self.assertEqual(self.suspicious(both)["key"], OUTPUT)

    def test_a_parameter_that_is_noise_hides_nothing(self):
        def change(all):
            self.stale(all)
            tiny = [1e-9 * value for value in all[WEIGHT]["values"]]
            all[WEIGHT]["values"] = [-value for value in tiny]
        reference = second(lambda all: all[WEIGHT].update(
            values=[1e-9 * value for value in all[WEIGHT]["values"]]))
        self.reference = self.two("tiny.trace", reference)
        self.assertEqual(self.suspicious(change)["key"], GRADIENT)

    def test_a_gradient_that_is_rounding_hides_nothing(self):
        head = "it1/mb0/backward/head/grad_output.0"  # tiny beside that of the embedding

        def tiny(all):
            all[head]["values"] = [single(1e-7 * value) for value in all[head]["values"]]
        self.reference = self.two("tiny.trace", second(tiny))

        def change(all):
            self.stale(all)
            tiny(all)
            all[head]["values"] = with_error(all[head]["values"], 0.3)
        found = self.suspicious(change)
        self.assertEqual(found["key"], GRADIENT)
        self.assertEqual(found["before"]["of"], head)

    def test_nothing_is_said_of_it_where_the_first_iteration_differs(self):
        first = copy.deepcopy(step())
        first[5]["values"] = values(8, 48)
        path = self.write_ranks("both.trace", [{"rank": 0, "rank_json": rank_json(), "segments": [
            {"iteration": 0, "records": first}, {"iteration": 1, "records": second(self.stale)}]}])
        text = self.diff(self.reference, path, code=DIFFERS).stdout
        self.assertTrue(text.startswith("differs: "), text)
        self.assertNotIn("suspicious", text)


class Judged(LaterTest):
    """--iteration 1."""

    def one_unit(self, all):
        numbers = all[WEIGHT]["values"]
        numbers[0] = float(numpy.nextafter(numpy.float32(numbers[0]), numpy.float32(9)))

    def test_parameters_that_one_rounding_moved_are_right(self):
        candidate = self.candidate(self.one_unit)
        report = self.report(self.reference, candidate, "--iteration", "1", code=SAME)
        before = numpy.array(values(101, 24), numpy.float32)
        unit = float(numpy.spacing(numpy.abs(before[0])))
        drift = unit / float(numpy.linalg.norm(before.astype(float))) / 2**-23
        self.assertTrue(0 < drift < 1, drift)
        self.assertAlmostEqual(report["drift"], drift, places=6)
        self.assertEqual(report["coverage"]["phases"]["param"]["compared"], 4)
        smallest = report["coverage"]["phases"]["forward"]["smallest_limit"]
        self.assertAlmostEqual(smallest / (4 * 2**-23 * (1 + drift)), 1, places=6)
        text = self.diff(self.reference, candidate, "--iteration", "1", code=SAME).stdout
        self.assertIn("begins with parameters that rounding has moved", text)

    def test_what_is_wrong_there_is_found(self):
        def change(all):
            self.one_unit(all)
            self.off(1e-4, OUTPUT)(all)
        report = self.report(self.reference, self.candidate(change), "--iteration", "1",
                             code=DIFFERS)
        self.assertEqual(report["first"]["key"], OUTPUT)

    def test_more_than_that_is_refused(self):
        done = self.diff(self.reference, self.candidate(self.off(1e-6, WEIGHT)), "--iteration", "1",
                         code=TROUBLE)
        self.assertIn("begins with other parameters", done.stderr)


if __name__ == "__main__":
    unittest.main()
