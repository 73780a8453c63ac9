# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of how ranks call collectives, and of who brought a NaN into them."""
from __future__ import annotations

import json
import unittest

import numpy as np

from made_checks import F32, PASSED, TROUBLE, VIOLATED, along, dp_tp, drawn
from made_collectives import CollectiveTest, Made

WORLD = [0, 1, 2, 3]


def rows_only(made: Made, function: str, group: str, ranks, **more) -> None:
    made.call(function, group, ranks, [None] * len(ranks), [None] * len(ranks), **more)


class Order(CollectiveTest):
    def healthy(self) -> Made:
        """Two axes and the world, at other numbers on each rank."""
        made = Made(4, dp_tp)
        for i in range(3):
            for ranks in ([0, 1], [2, 3]):
                rows_only(made, "all_gather", f"tp{ranks[0]}", ranks, count=8, iteration=i)
                rows_only(made, "reduce_scatter", f"tp{ranks[0]}", ranks, count=8, iteration=i)
            for ranks in ([0, 2], [1, 3]):
                rows_only(made, "all_reduce", f"dp{ranks[0]}", ranks, count=40, reduction="avg",
                          iteration=i)
        rows_only(made, "barrier", "world", WORLD)
        return made

    def test_calls_that_agree(self):
        self.assertEqual(self.silent(self.healthy(), PASSED, "order")["compared"],
                         {"calls of all members": 19})

    def test_the_member_that_deviates_is_named(self):
        for change, text in (({"function": "all_reduce"}, "function (ranks 0, 1, 3: broadcast, "
                                                          "rank 2: all_reduce)"),
                             ({"dtype": "bfloat16"}, "dtype (ranks 0, 1, 3: float32, rank 2: "
                                                     "bfloat16)"),
                             ({"count": 7}, "count (ranks 0, 1, 3: 8 elements, rank 2: 7 elements)"),
                             ({"peer": 2}, "root (ranks 0, 1, 3: member 1, rank 2: member 2)"),
                             ({"reduction": "max"}, "reduction (ranks 0, 1, 3: none, rank 2: max)")):
            with self.subTest(text):
                made = self.healthy()
                rows_only(made, "broadcast", "world", WORLD, count=8, peer=1, module="loader")
                made.rows[2, 0][-1].update(change)
                found = self.only(self.run_check(made, VIOLATED, "order"))
                self.assertEqual((found["ranks"], found["certainty"], found["module"]),
                                 ([2], "certain", "loader"))
                self.assertIn("members do not agree on its " + text, found["what"])

    def test_what_follows_is_counted_and_not_told(self):
        made = self.healthy()
        for i in range(5):
            rows_only(made, "all_reduce", "world", WORLD, count=10 + i)
        for i, row in enumerate(made.rows[3, 0][-5:]):
            row["count"] = 20 + i
        found = self.only(self.run_check(made, VIOLATED, "order"))
        self.assertEqual(found["evidence"]["later calls of this group that do not fit either"], "4")

    def test_a_member_that_went_on_without_a_call(self):
        made = self.healthy()
        rows_only(made, "all_reduce", "dp1", [1, 3], iteration=0, lost=[1])
        # The others' later calls on the group come before it in the numbers of rank 3.
        found = self.only(self.run_check(self.late(made), VIOLATED, "order"))
        self.assertEqual((found["ranks"], found["certainty"]), ([3], "certain"))
        self.assertIn("rank 3 did not call it, nor any later one", found["what"])

    @staticmethod
    def late(made: Made) -> Made:
        made.record(3, "it3/param/fc.weight/value", drawn(1, 4))
        return made

    def test_at_the_end_of_the_recording_it_may_be_meant(self):
        made = self.healthy()
        rows_only(made, "all_reduce", "dp1", [1, 3], iteration=2, lost=[1])
        found = self.only(self.run_check(made, PASSED, "order"))
        self.assertEqual((found["ranks"], found["certainty"]), ([3], "possible"))

    def test_lost_records_are_no_mistake(self):
        for text, change in (("a member's recording has a gap here", lambda rows: rows.pop(1)),
                             ("called before a member's recording began", lambda rows: rows.pop(0))):
            made = self.healthy()
            change(made.rows[3, 0])
            self.assertIn(text, self.silent(made, PASSED, "order")["not_checked"])
        made = self.healthy()
        made.rows[3, 2].clear()
        made.incomplete.add((3, 2))
        self.assertIn("a member's recording ended early or lost records",
                      self.silent(made, PASSED, "order")["not_checked"])

    def test_one_rank_and_none(self):
        self.silent(self.healthy(), TROUBLE, "order", [0])
        self.assertIn("no collectives were recorded",
                      str(self.silent(Made(2), TROUBLE, "order")["not_checked"]))

    def test_sends_count_on_their_ranks_only(self):
        """Between 0 and 1 go two tensors, then all reduce: numbers differ by member."""
        made = Made(3)
        for i in range(2):
            made.pair("pp", 3, (0, 0), (1, 1), drawn(i, 4), drawn(i, 4))
            rows_only(made, "all_reduce", "pp", range(3), count=1)
        self.assertEqual(self.silent(made, PASSED, "order")["compared"],
                         {"calls of all members": 2, "sends with receives": 2})

    def test_messages_with_tags_may_change_places(self):
        made = Made(2)
        x, y = drawn(1, 20), drawn(2, 30)
        for sent, got in ((x, y), (y, x)):
            made.pair("pp", 2, (0, 0), (1, 1), sent, got)
        for name in ("order", "conserve"):
            self.assertEqual(sum(self.silent(made, PASSED, name)["compared"].values()), 2)
        made.pair("pp", 2, (0, 0), (1, 1), x, x + 1)  # no place has this
        self.assertTrue(self.run_check(made, VIOLATED, "conserve")["violations"])

    def test_who_receives_from_anybody(self):
        made = Made(2)
        x, y = drawn(1, 20), drawn(2, 30)
        for sent in (x, y):
            made.pair("pp", 2, (0, 0), (1, 1), sent, sent)
        made.rows[1, 0][0]["peer"] = -1
        self.assertEqual(self.silent(made, TROUBLE, "order")["not_checked"],
                         {"sends and receives whose other side is not known": 4})

    def test_what_is_received_is_what_was_sent(self):
        made = Made(2)
        made.pair("pp", 2, (0, 0), (1, 1), drawn(1, 4), drawn(1, 5))
        found = self.only(self.run_check(made, VIOLATED, "order"))
        self.assertIn("count (rank 0: 4 elements, rank 1: 5 elements)", found["what"])
        self.assertEqual(found["certainty"], "likely")

    def test_a_call_that_failed_is_left_out(self):
        made = self.healthy()
        rows_only(made, "broadcast", "world", WORLD, count=8, peer=1)
        made.rows[2, 0][-1].update({"flags": 8, "count": 3})
        self.assertIn("calls that returned an error",
                      self.silent(made, PASSED, "order")["not_checked"])


class Parameters(CollectiveTest):
    """Programs that name the parameter whose gradient they reduce."""

    LAYOUTS = {"fc1.weight": "f[tp] h", "fc2.weight": "h f[tp]", "norm.weight": "h"}

    def made(self, reductions, declared_by="rank.json") -> list:
        """`declared_by`: "rank.json", or records of a phase: "param", "grad", "step"."""
        made = Made(4, dp_tp)
        slots = {"param": "value", "grad": "reduced", "step": "param"}
        for name, lines in reductions.items():
            parameter = name.split("@")[0]
            for ranks in lines:
                x = [drawn(r, 32) for r in ranks]
                made.call("all_reduce", "g" + "".join(map(str, ranks)), ranks, x, [sum(x)] * 2,
                          reduction="sum", module=parameter, count=32)
        for parameter in self.LAYOUTS:
            for rank in WORLD:
                made.record(rank, f"it0/grad/{parameter}/reduced", drawn(9, 4, 8),
                            **self.declared(parameter, declared_by == "grad"))
                for phase in {"param", "step"} & {declared_by}:
                    made.record(rank, f"it0/{phase}/{parameter}/{slots[phase]}", drawn(9, 4, 8),
                                **self.declared(parameter, True))
        described = made.described()
        for rank in described if declared_by == "rank.json" else []:
            rank["rank_json"]["parameters"] = {
                name: {"shape": [4, 8] if name != "norm.weight" else [32], "dtype": "float32",
                       "layout": {"dims": dims, "source": "program"}}
                for name, dims in self.LAYOUTS.items()}
        return described

    def declared(self, parameter: str, wanted: bool) -> dict:
        """As Place::layout of ttrace.hpp says it."""
        if not wanted:
            return {}
        dims = self.LAYOUTS[parameter].replace("h", "h e") if parameter == "norm.weight" else (
            self.LAYOUTS[parameter])
        whole = [extent * (2 if "[" in dim else 1) for dim, extent in zip(dims.split(), (4, 8))]
        return {"layout": json.dumps({"dims": dims, "shape": whole, "source": "program"})}

    def of(self, reductions, code: int, name: str, declared_by="rank.json") -> dict:
        self.written = getattr(self, "written", 0) + 1
        trace = self.write_ranks(f"{self.written}.trace", self.made(reductions, declared_by))
        return self.check(trace, code, name)[name]

    DP, TP = ([0, 2], [1, 3]), ([0, 1], [2, 3])
    RIGHT = {"fc1.weight": DP, "fc2.weight": DP, "norm.weight@tp": TP, "norm.weight": DP}

    def test_sums_over_data_parallel_ranks(self):
        for name in ("parts", "unreduced"):
            self.assertEqual(self.of(self.RIGHT, PASSED, name)["violations"], [])

    def test_a_sum_over_the_ranks_that_hold_other_parts(self):
        found = self.only(self.of({**self.RIGHT, "fc2.weight": self.TP}, VIOLATED, "parts"))
        self.assertEqual((found["module"], found["ranks"], found["certainty"]),
                         ("fc2.weight", [0, 1], "likely"))
        self.assertIn("adds up different parts of fc2.weight, which is cut along tp", found["what"])

    def test_records_declare_layouts_as_rank_json_does(self):
        for phase in ("param", "grad", "step"):
            good = self.of(self.RIGHT, PASSED, "parts", phase)
            self.assertEqual(good["compared"]["sums of gradients with their layouts"], 8, phase)
            self.assertEqual(good["violations"], [], phase)
            wrong = {**self.RIGHT, "fc2.weight": self.TP}
            found = self.only(self.of(wrong, VIOLATED, "parts", phase))
            self.assertEqual((found["module"], found["ranks"]), ("fc2.weight", [0, 1]), phase)

    def test_a_parameter_that_is_forgotten(self):
        self.LAYOUTS = {**self.LAYOUTS, "words.weight": "v[tp] h"}
        right = {**self.RIGHT, "words.weight": self.DP}
        self.assertEqual(self.of(right, PASSED, "unreduced")["violations"], [])
        del right["words.weight"]
        found = self.only(self.of(right, VIOLATED, "unreduced"))
        self.assertEqual((found["module"], found["ranks"]), ("words.weight", WORLD))
        self.assertIn("is not summed along dp, as those of 3 other parameters are", found["what"])
        # Along the tensor parallel axis alone is not along dp.
        self.only(self.of({**right, "words.weight": self.TP}, VIOLATED, "unreduced"))


class Skipped(CollectiveTest):
    def made(self, lacking=(), axis=None, last_only=False, layers=6) -> Made:
        made = Made(4, dp_tp)
        for m in range(4):
            for layer in range(layers):
                name = f"layers.{layer}.fc2"
                for rank in WORLD:
                    made.record(rank, f"it0/mb{m}/forward/{name}/output.0", drawn(layer, 4))
                groups = ([0, 1], [2, 3])
                if (m, layer) in lacking:
                    groups = () if axis is None else axis
                for ranks in groups:
                    rows_only(made, "all_reduce", f"g{ranks[0]}{ranks[1]}", ranks, module=name,
                              microbatch=m, reduction="sum")
                if m == 3 and last_only:
                    for ranks in ([0, 2], [1, 3]):
                        rows_only(made, "all_reduce", f"g{ranks[0]}{ranks[1]}", ranks, module=name,
                                  microbatch=m, reduction="avg")
        return made

    def test_all_layers_alike(self):
        self.silent(self.made(), PASSED, "skipped")

    def test_a_layer_without_its_call(self):
        found = self.only(self.run_check(self.made([(m, 3) for m in range(4)]), VIOLATED,
                                         "skipped"))
        self.assertEqual((found["module"], found["certainty"]), ("layers.3.fc2", "likely"))
        self.assertIn("calls none, where 80 of 96 such modules of all layers call "
                      "all_reduce (sum) along tp", found["what"])

    def test_a_layer_with_another_group(self):
        other = self.made([(m, 2) for m in range(4)], ([0, 2], [1, 3]))
        found = self.only(self.run_check(other, VIOLATED, "skipped"))
        self.assertIn("calls all_reduce (sum) along dp, where", found["what"])

    def test_a_micro_batch_without_it(self):
        found = self.only(self.run_check(self.made([(1, 0)]), VIOLATED, "skipped"))
        self.assertEqual((found["module"], found["microbatch"]), ("layers.0.fc2", 1))

    def test_first_and_last_may_differ(self):
        result = self.run_check(self.made([(m, 5) for m in range(4)]), PASSED, "skipped")
        self.assertEqual({found["certainty"] for found in result["violations"]}, {"possible"})

    def test_frozen_layers_at_the_beginning_may_differ(self):
        odd = [(m, layer) for m in range(4) for layer in (0, 1)]
        result = self.run_check(self.made(odd, layers=8), PASSED, "skipped")
        self.assertEqual({(v["module"], v["certainty"]) for v in result["violations"]},
                         {("layers.0.fc2", "possible"), ("layers.1.fc2", "possible")})

    def test_gradients_are_reduced_in_the_last_micro_batch(self):
        self.silent(self.made(last_only=True), PASSED, "skipped")

    def test_buckets_go_wherever_a_module_is_at_work(self):
        """Gradients along dp in two layers of six; parameters gathered ahead in all but one."""
        made = self.made()
        for layer in range(6):
            for function, layers in (("reduce_scatter", (1, 4)), ("all_gather", (0, 1, 3, 4, 5))):
                if layer in layers:
                    for ranks in ([0, 2], [1, 3]):
                        rows_only(made, function, f"g{ranks[0]}{ranks[1]}", ranks,
                                  module=f"layers.{layer}.fc2", microbatch=1)
        self.silent(made, PASSED, "skipped")

    def test_the_odd_one_of_three_layers_may_be_meant(self):
        for layer in range(3):
            odd = self.made([(m, layer) for m in range(4)], layers=3)
            found = self.only(self.run_check(odd, PASSED, "skipped"))
            self.assertEqual((found["module"], found["certainty"]),
                             (f"layers.{layer}.fc2", "possible"))

    def test_two_layers_that_differ_say_nothing(self):
        result = self.silent(self.made([(m, 1) for m in range(4)], layers=2), PASSED, "skipped")
        self.assertEqual(list(result["not_checked"].items()), [
            ("modules of one kind make different calls, and too few layers agree to tell which are "
             "right", 1)])

    def test_half_of_the_layers_say_nothing(self):
        """Every other layer has experts."""
        odd = [(m, layer) for m in range(4) for layer in (1, 3, 5)]
        result = self.silent(self.made(odd), PASSED, "skipped")
        self.assertEqual(len(result["not_checked"]), 1)

    def test_too_few_layers(self):
        made = Made(2)
        for layer in range(2):
            made.record(0, f"it0/mb0/forward/layers.{layer}/output.0", drawn(1, 4))
            rows_only(made, "all_reduce", "tp", [0, 1], module=f"layers.{layer}", microbatch=0)
        self.silent(made, TROUBLE, "skipped")


class Nonfinite(CollectiveTest):
    def test_a_nan_is_told_of_the_rank_that_sent_it(self):
        nan, good = drawn(1, 16), drawn(2, 16)
        nan[3] = np.nan
        made = Made(3, along("tp", 3))
        for rank, values in enumerate((good, nan, good)):
            made.record(rank, "it0/mb0/forward/fc1/output.0", values)
        total = good + nan + good
        made.call("all_reduce", "tp", range(3), [good, nan, good], [total] * 3, microbatch=0,
                  reduction="sum", module="fc2")
        for rank in range(3):
            made.record(rank, "it0/mb0/forward/fc2/output.0", total)
        found = self.only(self.run_check(made, VIOLATED, "nonfinite"))
        self.assertEqual((found["ranks"], found["key"]), ([1], "it0/mb0/forward/fc1/output.0"))
        self.assertEqual(found["evidence"]["inherited by"], "ranks 0, 2")
        self.assertIn("all_reduce (sum), call 0 of group tp (ranks 0-2; along tp) in fc2",
                      found["evidence"]["through"])

    def test_through_two_groups(self):
        """From rank 3 to rank 2 along tp, from there to rank 0 along dp."""
        good, nan = drawn(2, 16), np.full(16, np.nan, F32)
        made = Made(4, dp_tp)
        made.record(3, "it0/mb0/forward/a/output.0", nan)
        made.call("all_reduce", "tp1", [2, 3], [good, nan], [nan] * 2, reduction="sum")
        made.call("all_reduce", "dp0", [0, 2], [good, nan], [nan] * 2, reduction="sum")
        found = self.only(self.run_check(made, VIOLATED, "nonfinite"))
        self.assertEqual((found["ranks"], found["evidence"]["inherited by"]), ([3], "ranks 0, 2"))

    def test_memory_that_nobody_reads_yet(self):
        good, garbage = drawn(2, 16), np.full(16, np.nan, F32)
        made = Made(2, along("dp", 2))
        made.call("broadcast", "dp", [0, 1], [good, garbage], [good] * 2, peer=0)
        made.call("reduce", "dp", [0, 1], [good] * 2, [garbage, good + good], peer=1,
                  reduction="sum")
        self.silent(made, PASSED, "nonfinite")

    def test_a_collective_that_makes_it_from_finite_numbers(self):
        huge = np.full(16, 3e38, F32)
        made = Made(2, along("dp", 2))
        made.call("all_reduce", "dp", [0, 1], [huge] * 2, [np.full(16, np.nan)] * 2,
                  reduction="sum")
        result = self.run_check(made, VIOLATED, "nonfinite")
        self.assertEqual(sorted(found["ranks"] for found in result["violations"]), [[0], [1]])


if __name__ == "__main__":
    unittest.main()
