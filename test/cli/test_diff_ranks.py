# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff on traces of several ranks: shards, replicas, addends, local losses."""
from __future__ import annotations

import copy
import json
import pathlib
import unittest

from made_traces import DIFFERS, SAME, TROUBLE, DiffTest, rank_json, record, single, step, values


class Sharded(DiffTest):
    """Two tensor-parallel ranks: layers.0.fc is cut by columns, the rest is replicated."""

    CUT = "it0/mb0/forward/layers.0.fc/output.0"

    def candidate(self, change=lambda rank, records: None, axes=("tp",)) -> pathlib.Path:
        ranks = []
        for rank in range(2):
            records = copy.deepcopy(step())
            for entry in records:
                if entry["key"] == self.CUT:
                    rows = [entry["values"][6 * row:6 * row + 6] for row in range(8)]
                    entry["values"] = [value for row in rows
                                       for value in row[3 * rank:3 * rank + 3]]
                    entry["shape"] = [8, 3]
            change(rank, {entry["key"]: entry for entry in records})
            ranks.append({"rank": rank,
                          "rank_json": rank_json(world_size=2, axes=[
                              {"name": name, "size": 2, "coord": rank} for name in axes]),
                          "segments": [{"iteration": 0, "records": records}]})
        return self.write_ranks("sharded.trace", ranks)

    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", step())

    def test_shards_are_put_together(self):
        report = self.report(self.reference, self.candidate(), code=SAME)
        self.assertEqual(report["coverage"]["compared"], 22)
        layouts = {line["tensors"]: line["layout"] for line in report["layouts"]}
        self.assertEqual(layouts["forward/layers.*.fc/output.0"], "- [tp]")

    def declared(self, dims: str, axes=("tp",)) -> pathlib.Path:
        def declare(_, records):
            records[self.CUT]["layout"] = json.dumps({"dims": dims, "shape": [8, 6]})
        return self.candidate(declare, axes)

    def test_an_axis_that_nobody_has_is_named(self):
        report = self.report(self.reference, self.declared("h [tq]"), code=DIFFERS)
        self.assertEqual(report["first"]["kind"], "layout_contradicted")
        self.assertIn("no axis of more than one rank is called tq, there are tp)",
                      report["first"]["message"])

    def test_an_axis_that_was_not_declared_is_named(self):
        report = self.report(self.reference, self.declared("h [tp]", axes=()), code=DIFFERS)
        self.assertIn("no axis of more than one rank is called tp, none is declared)",
                      report["first"]["message"])
        self.assertEqual(report["findings"][0]["evidence"]["ranks"],
                         "2 ranks (no mesh axis is declared)")

    def test_a_layout_that_is_none_is_told_with_its_tensor(self):
        done = self.diff(self.reference, self.declared("h [tp"), code=TROUBLE)
        self.assertIn(f'layout: {self.CUT} of rank 0: dims: "h [tp", column 6: expected "," or "]"',
                      done.stderr)

    def test_a_wrong_rank_is_named(self):
        def double(rank, records):
            if rank == 1:
                records[self.CUT]["values"] = [2 * v for v in records[self.CUT]["values"]]
        report = self.report(self.reference, self.candidate(double), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.CUT)
        self.assertEqual(report["findings"][0]["ranks"], [1])
        self.assertIn("a factor of exactly 2, on rank 1 only", report["first"]["message"])

    def test_replicas_that_differ_are_a_conflict(self):
        key = "it0/grad/head.weight/reduced"

        def nudge(rank, records):
            if rank == 1:
                records[key]["values"][5] += 1e-6
        report = self.report(self.reference, self.candidate(nudge), code=DIFFERS)
        self.assertEqual((report["first"]["key"], report["first"]["kind"]),
                         (key, "replica_conflict"))

    def test_a_sharded_trace_without_declarations_is_the_same_as_itself(self):
        candidate = self.candidate()
        report = self.report(candidate, candidate, code=SAME)
        self.assertEqual(report["coverage"]["compared"], report["coverage"]["expected"])


class DataParallel(DiffTest):
    """Two data-parallel ranks with half of the samples each, and a module that all samples share."""

    SHARED = "it0/mb0/backward/positions/grad_output.0"
    LOSS = "it0/mb0/forward/@root/output.0"
    REDUCED = "it0/grad/positions.weight/reduced"

    @staticmethod
    def step() -> list[dict]:
        return [*step(), record("it0/mb0/forward/positions/output.0", [3, 6], values(7, 18)),
                record(DataParallel.SHARED, [3, 6], values(8, 18)),
                record(DataParallel.REDUCED, [3, 6], values(9, 18))]

    def candidate(self, change=lambda rank, records: None) -> pathlib.Path:
        """Losses are means over local samples, so activation gradients are twice as large."""
        ranks = []
        for rank in range(2):
            records = {entry["key"]: entry for entry in copy.deepcopy(self.step())}
            for key, entry in records.items():
                if entry["shape"][:1] == [8]:
                    half = len(entry["values"]) // 2
                    entry["values"] = entry["values"][half * rank:half * (rank + 1)]
                    entry["shape"] = [4, *entry["shape"][1:]]
                if "/backward/" in key:
                    entry["values"] = [2 * value for value in entry["values"]]
            addend = values(50, 18)
            whole = records[self.SHARED]["values"]
            records[self.SHARED]["values"] = addend if rank == 0 else [
                single(value - other) for value, other in zip(whole, addend)]
            records[self.LOSS]["values"] = [2.0 + rank]
            change(rank, records)
            ranks.append({"rank": rank, "rank_json": rank_json(world_size=2, axes=[
                {"name": "dp", "size": 2, "coord": rank}]),
                "segments": [{"iteration": 0, "records": list(records.values())}]})
        return self.write_ranks("dp.trace", ranks)

    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", self.step())

    def test_local_losses_shared_gradients_and_the_seed_are_understood(self):
        report = self.report(self.reference, self.candidate(), code=SAME)
        self.assertEqual(report["coverage"]["compared"], 25)
        seed = report["gradient_seeds"][0]
        self.assertEqual((seed["factor"], seed["meaning"]), (2.0, "dp"))

    def test_a_wrong_local_loss_is_found(self):
        def change(rank, records):
            records[self.LOSS]["values"] = [2.0 + 1.25 * rank]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.LOSS)

    def test_addends_with_a_wrong_sum_are_found(self):
        def change(rank, records):
            records[self.SHARED]["values"][0] += rank
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.SHARED)

    def test_addends_that_nobody_adds_up_are_found(self):
        def change(rank, records):
            del records[self.REDUCED]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        kinds = {entry["key"]: entry["kind"] for entry in report["findings"]}
        self.assertEqual(kinds[self.SHARED], "partial_incomplete")

    def test_gradients_that_were_not_reduced_are_found(self):
        key = "it0/grad/head.weight/reduced"

        def change(rank, records):
            records[key]["values"] = [2 * value for value in records[key]["values"]]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], key)
        self.assertIn("a factor of exactly 2", report["first"]["message"])


if __name__ == "__main__":
    unittest.main()
