# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of collectives whose right values are worked out here."""
from __future__ import annotations

import unittest

import numpy as np

from made_checks import F32, PASSED, TROUBLE, VIOLATED, dp_tp, drawn
from made_collectives import CollectiveTest, Made, bfloat16

ALL = [0, 1, 2, 3]


def reduced(inputs, outputs, **row):
    made = Made(len(inputs))
    made.call("all_reduce", "world", range(len(inputs)), inputs, outputs, **row)
    return made


class Reductions(CollectiveTest):
    def test_any_order_of_additions_in_bfloat16_is_right(self):
        x = [bfloat16(drawn(seed, 64)) for seed in range(4)]
        orders = [bfloat16(bfloat16(bfloat16(x[0] + x[1]) + x[2]) + x[3]),
                  bfloat16(bfloat16(bfloat16(x[3] + x[2]) + x[1]) + x[0]),
                  bfloat16(bfloat16(x[0] + x[2]) + bfloat16(x[1] + x[3])),
                  bfloat16(np.sum([v.astype(np.float64) for v in x], axis=0))]
        self.assertGreater(len({order.tobytes() for order in orders}), 3)
        for order in orders:
            result = self.silent(reduced(x, [order] * 4, reduction="sum", dtype="bfloat16"), PASSED,
                                 "conserve")
            self.assertEqual(result["compared"], {"outputs of all members": 1, "reductions": 1})

    def test_the_limit_is_that_of_two_roundings(self):
        """1 + 1 + 1: an error of 2 x 2^-24 x 3 = 3.6e-7 may be rounding, twice 2^-22 may not."""
        ones = [np.ones(1, F32)] * 3
        near, far = F32(3 + 2 ** -22), F32(3 + 2 ** -21)
        self.silent(reduced(ones, [[near]] * 3, reduction="sum"), PASSED, "conserve")
        found = self.only(self.run_check(reduced(ones, [[far]] * 3, reduction="sum"), VIOLATED,
                                         "conserve"))
        self.assertEqual((found["certainty"], found["ranks"]), ("certain", [0, 1, 2]))
        self.assertIn("1 of 1 element beyond rounding, first number 0: 3, not 3", found["what"])

    def test_every_reduction_gives_its_own_value(self):
        x = [drawn(seed, 8) for seed in range(3)]
        sums = x[0] + x[1] + x[2]
        for reduction, right, more in (
                ("sum", sums, {}), ("avg", sums / F32(3), {}), ("prod", x[0] * x[1] * x[2], {}),
                ("premul_sum", sums * F32(0.125), {"factor": 0.125}),
                ("min", np.minimum.reduce(x), {}), ("max", np.maximum.reduce(x), {})):
            with self.subTest(reduction):
                self.silent(reduced(x, [right] * 3, reduction=reduction, **more), PASSED,
                            "conserve")
                wrong = right.copy()
                wrong[5] = wrong[5] * F32(1.001) + F32(1e-4)
                found = self.only(self.run_check(
                    reduced(x, [wrong] * 3, reduction=reduction, **more), VIOLATED, "conserve"))
                self.assertIn("1 of 8 elements beyond rounding, first number 5", found["what"])

    def test_a_member_that_is_left_out_is_named(self):
        x = [drawn(seed, 32) for seed in range(4)]
        lacking = x[0] + x[1] + x[3]
        found = self.only(self.run_check(reduced(x, [lacking] * 4, reduction="sum", module="fc2"),
                                         VIOLATED, "conserve"))
        self.assertIn("it lacks what rank 2 put in", found["what"])
        self.assertEqual((found["module"], found["iteration"]), ("fc2", 0))
        doubled = x[0] + x[1] + x[2] + x[3] + x[1]
        found = self.only(self.run_check(reduced(x, [doubled] * 4, reduction="sum"), VIOLATED,
                                         "conserve"))
        self.assertIn("what rank 1 put in counts twice", found["what"])

    def test_nothing_was_reduced(self):
        x = [drawn(seed, 32) for seed in range(2)]
        result = self.run_check(reduced(x, x, reduction="sum"), VIOLATED, "conserve")
        self.assertIn("nothing was added", result["violations"][0]["what"])

    def test_a_sum_where_a_mean_was_asked_for(self):
        x = [drawn(seed, 32) for seed in range(4)]
        found = self.only(self.run_check(reduced(x, [sum(x)] * 4, reduction="avg"), VIOLATED,
                                         "conserve"))
        self.assertIn("a sum where a mean is meant", found["look_at"])

    TIMES = "the output is about this times what it should be"

    def test_a_factor_is_told_where_it_explains_the_numbers(self):
        x = [drawn(seed, 64) for seed in range(2)]
        scaled = reduced(x, [(x[0] + x[1]) * F32(0.3)] * 2, reduction="sum")
        found = self.only(self.run_check(scaled, VIOLATED, "conserve"))
        self.assertAlmostEqual(float(found["evidence"][self.TIMES]), 0.3)
        other = reduced(x, [drawn(9, 64)] * 2, reduction="sum")
        found = self.only(self.run_check(other, VIOLATED, "conserve"))
        self.assertNotIn(self.TIMES, found["evidence"])

    def test_integers_are_exact_beyond_2_53_and_wrap(self):
        big = [np.array([2 ** 60 + 1, 2 ** 62, -5]), np.array([2 ** 60 + 2, 2 ** 62, 7])]
        right = np.array([2 ** 61 + 3, -(2 ** 63), 2])
        self.silent(reduced(big, [right] * 2, reduction="sum", dtype="int64"), PASSED, "conserve")
        off = right + np.array([1, 0, 0])
        self.run_check(reduced(big, [off] * 2, reduction="sum", dtype="int64"), VIOLATED,
                       "conserve")
        self.silent(reduced([[5, -5]] * 3, [[5, -5]] * 3, reduction="avg", dtype="int64"), PASSED,
                    "conserve")

    def test_a_nan_must_not_get_lost_and_overflow_is_not_decided(self):
        nan = [np.array([np.nan, 1.0]), np.array([2.0, 1.0])]
        self.silent(reduced(nan, [[np.nan, 2.0]] * 2, reduction="sum"), PASSED, "conserve")
        self.run_check(reduced(nan, [[2.0, 2.0]] * 2, reduction="sum"), VIOLATED, "conserve")
        huge = [np.array([3e38]), np.array([3e38]), np.array([-3e38])]
        for value in (np.inf, 3e38):
            result = self.silent(reduced(huge, [[value]] * 3, reduction="sum"), PASSED, "conserve")
            self.assertIn("elements that may have left the range of their type",
                          result["not_checked"])

    def test_members_with_other_bits_within_rounding(self):
        x = [bfloat16(drawn(seed, 64)) for seed in range(3)]
        left = bfloat16(bfloat16(x[0] + x[1]) + x[2])
        right = bfloat16(x[0] + bfloat16(x[1] + x[2]))
        self.assertNotEqual(left.tobytes(), right.tobytes())
        found = self.only(self.run_check(
            reduced(x, [left, left, right], reduction="sum", dtype="bfloat16"), VIOLATED,
            "conserve"))
        self.assertEqual((found["certainty"], found["ranks"]), ("likely", [0, 1, 2]))
        self.assertIn("members did not get the same bits", found["what"])

    def test_of_a_reduce_only_the_root_has_a_result(self):
        x = [drawn(seed, 16) for seed in range(3)]
        made = Made(3)
        made.call("reduce", "world", range(3), x, [drawn(9, 16), x[0] + x[1] + x[2], None],
                  reduction="sum", peer=1)
        self.assertEqual(self.silent(made, PASSED, "conserve")["compared"], {"reductions": 1})

    def test_empty_tensors_and_groups_of_one(self):
        empty = np.zeros((0, 4), F32)
        made = reduced([empty] * 2, [empty] * 2, reduction="sum")
        one = drawn(1, 8)
        made.call("all_reduce", "self", [0], [one], [one], reduction="avg")
        self.silent(made, PASSED, "conserve")

    def test_large_tensors_are_read_in_tiles(self):
        x = [drawn(seed, 200_001) for seed in range(2)]
        right = x[0] + x[1]
        self.silent(reduced(x, [right] * 2, reduction="sum"), PASSED, "conserve")
        right[150_000] += F32(1)
        found = self.only(self.run_check(reduced(x, [right] * 2, reduction="sum"), VIOLATED,
                                         "conserve"))
        self.assertIn("1 of 200001 elements beyond rounding, first number 150000", found["what"])

    def test_one_rank_alone_says_nothing(self):
        x = [drawn(seed, 16) for seed in range(2)]
        result = self.run_check(reduced(x, [x[0]] * 2, reduction="sum"), TROUBLE, "conserve", [0])
        self.assertEqual(result["not_checked"],
                         {"some members of a group are not in the trace": 1})

    def test_metadata_and_hashes(self):
        x = [drawn(seed, 16) for seed in range(2)]
        none = reduced([None] * 2, [None] * 2, reduction="sum")
        self.assertIn("--comm full", str(self.run_check(none, TROUBLE, "conserve")["not_checked"]))
        hashes = reduced(x, [x[0] + x[1]] * 2, reduction="sum", kind="hash")
        self.assertEqual(self.silent(hashes, PASSED, "conserve")["compared"],
                         {"outputs of all members": 1})
        other = reduced(x, [x[0] + x[1], x[0]], reduction="sum", kind="hash")
        self.assertEqual(self.only(self.run_check(other, VIOLATED, "conserve"))["certainty"],
                         "likely")


class Copies(CollectiveTest):
    def test_slices_of_a_reduce_scatter(self):
        x = [drawn(seed, 3, 4) for seed in range(3)]
        total = x[0] + x[1] + x[2]
        rows = [total[0], total[1], total[2]]

        def made(outputs):
            made = Made(3)
            made.call("reduce_scatter", "tp", range(3), x, outputs, reduction="sum")
            return made

        self.silent(made(rows), PASSED, "conserve")
        result = self.run_check(made([rows[1], rows[0], rows[2]]), VIOLATED, "conserve")
        self.assertEqual(result["violations"][0]["ranks"], [0])

    def test_a_slice_that_is_another_members(self):
        x = [drawn(seed, 24) for seed in range(3)]
        total = x[0] + x[1] + x[2]
        made = Made(3)
        made.call("reduce_scatter", "tp", range(3), x, [total[:8], total[16:], total[8:16]],
                  reduction="sum")
        found = self.only(self.run_check(made, VIOLATED, "conserve"))
        self.assertEqual(found["ranks"], [1])
        self.assertIn("; it holds the part of rank 2", found["what"])
        self.assertIn("the order of the members", found["look_at"])

    def test_uneven_slices(self):
        x = [drawn(seed, 8) for seed in range(2)]
        total = x[0] + x[1]
        made = Made(2)
        made.call("reduce_scatter", "tp", range(2), x, [total[:3], total[3:]], reduction="sum",
                  splits=(["3,5", "3,5"], ["", ""]))
        made.call("all_gather", "tp", range(2), [x[0][:3], x[1][:5]],
                  [np.concatenate([x[0][:3], x[1][:5]])] * 2, splits=(["", ""], ["3,5", "3,5"]))
        self.assertEqual(self.silent(made, PASSED, "conserve")["compared"],
                         {"copied pieces": 2, "outputs of all members": 1, "reductions": 2})

    def test_an_all_gather_in_another_order(self):
        x = [drawn(seed, 4) for seed in range(3)]
        made = Made(3)
        made.call("all_gather", "tp", range(3), x,
                  [np.concatenate([x[0], x[2], x[1]])] * 3, module="fc1")
        found = self.only(self.run_check(made, VIOLATED, "conserve"))
        self.assertIn("did not get what rank 1 put in for it", found["what"])
        self.assertIn("it holds what rank 2 put in", found["what"])
        self.assertEqual(found["ranks"], [0, 1, 2])

    def test_roots(self):
        x = [drawn(seed, 6) for seed in range(3)]
        made = Made(3)
        made.call("broadcast", "g", range(3), [None, x[1], drawn(9, 6)], [x[1]] * 3, peer=1)
        made.call("scatter", "g", range(3), [None, None, x[0]],
                  [x[0][:2], x[0][2:4], x[0][4:]], peer=2)
        made.call("gather", "g", range(3), [x[0][:2], x[0][2:4], x[0][4:]], [x[0], None, None],
                  peer=0)
        made.call("barrier", "g", range(3), [None] * 3, [None] * 3)
        self.assertEqual(self.silent(made, PASSED, "conserve")["compared"],
                         {"copied pieces": 7, "outputs of all members": 1})
        wrong = Made(3)
        wrong.call("broadcast", "g", range(3), [None, x[1], None], [x[1], x[1], x[2]], peer=1)
        self.assertEqual(self.only(self.run_check(wrong, VIOLATED, "conserve"))["ranks"], [2])

    def test_uneven_all_to_all(self):
        """Member i sends i + j + 1 numbers to member j."""
        parts = [[drawn(10 * i + j, i + j + 1) for j in range(3)] for i in range(3)]
        splits = [",".join(str(i + j + 1) for j in range(3)) for i in range(3)]
        got = [np.concatenate([parts[j][i] for j in range(3)]) for i in range(3)]

        def made(outputs):
            made = Made(3)
            made.call("all_to_all", "ep", range(3), [np.concatenate(part) for part in parts],
                      outputs, splits=(splits, splits))
            return made

        self.silent(made(got), PASSED, "conserve")
        got[1] = got[1].copy()
        got[1][-1] = 7
        found = self.only(self.run_check(made(got), VIOLATED, "conserve"))
        self.assertEqual(found["ranks"], [1])
        self.assertIn("did not get what rank 2 put in for it: 1 of 4 elements differ, first "
                      "number 3", found["what"])

    def test_sends(self):
        x = [drawn(seed, 6) for seed in range(3)]
        made = Made(2)
        for i in range(3):
            made.pair("pp", 2, (0, 0), (1, 1), x[i], x[i])
            made.pair("pp", 2, (1, 1), (0, 0), -x[i], -x[i])
        self.assertEqual(self.silent(made, PASSED, "conserve")["compared"], {"copied pieces": 6})
        made.pair("pp", 2, (0, 0), (1, 1), x[0], x[1])
        found = self.only(self.run_check(made, VIOLATED, "conserve"))
        self.assertEqual((found["ranks"], found["certainty"]), ([1], "certain"))

    def test_a_recording_that_lacks_the_first_receives(self):
        x = [drawn(seed, 6) for seed in range(4)]
        made = Made(2)
        for i in range(4):
            made.pair("pp", 2, (0, 0), (1, 1), x[i], x[i], lost=("recv",) if i == 0 else ())
        result = self.silent(made, PASSED, "conserve")
        self.assertEqual(result["compared"], {"copied pieces": 3})

    def test_groups_of_one_name_on_different_ranks(self):
        """Each rank calls its own group "tp"; rank.json says which ranks it means."""
        x = [drawn(seed, 8) for seed in ALL]

        def made(groups):
            made = Made(4, dp_tp, groups)
            for ranks in ([0, 1], [2, 3]):
                total = x[ranks[0]] + x[ranks[1]]
                made.call("all_reduce", "tp", ranks, [x[r] for r in ranks], [total] * 2,
                          reduction="sum")
            return made

        declared = made(lambda rank: {"tp": [rank // 2 * 2, rank // 2 * 2 + 1]})
        self.assertEqual(self.silent(declared, PASSED, "conserve")["compared"],
                         {"outputs of all members": 2, "reductions": 2})
        self.silent(made(None), TROUBLE, "conserve")
        result = self.silent(made(None), TROUBLE, "order")
        self.assertIn("several groups have one name: tp", result["not_checked"])


if __name__ == "__main__":
    unittest.main()
