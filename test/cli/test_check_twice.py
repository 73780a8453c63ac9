# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of sums that are summed again, by what is done to them in between and
afterwards. Let N ranks have the gradients x, and S be their sum."""
from __future__ import annotations

import unittest

import numpy as np

from made_checks import F32, PASSED, VIOLATED, along, dp_tp, drawn
from made_collectives import CollectiveTest, Made, bfloat16

WORLD = [0, 1, 2, 3]


class Twice(CollectiveTest):
    def test_a_sum_that_is_summed_again(self):
        x = [drawn(seed, 32) for seed in range(2)]
        made = Made(2, along("dp", 2))
        made.call("all_reduce", "dp", [0, 1], x, [sum(x)] * 2, reduction="sum", module="fc")
        made.call("all_reduce", "dp", [0, 1], [sum(x)] * 2, [2 * sum(x)] * 2, reduction="sum",
                  module="loop")
        found = self.only(self.run_check(made, PASSED, "twice"))
        self.assertEqual((found["ranks"], found["module"], found["certainty"]),
                         ([0, 1], "loop", "possible"))  # who knows what is done with it
        self.assertIn("each addend counts 2 times", found["what"])
        for rank in range(2):
            made.record(rank, "it0/mb0/forward/loop/output.0", 2 * sum(x))
        found = self.only(self.run_check(made, VIOLATED, "twice"))
        self.assertEqual(found["evidence"], {"taken as it is by": "it0/mb0/forward/loop/output.0"})

    def two_axes(self, x, first, second, second_input, **more) -> Made:
        made = Made(4, dp_tp)
        for ranks in first:
            total = sum(x[r] for r in ranks)
            made.call("all_reduce", f"a{ranks[0]}", ranks, [x[r] for r in ranks],
                      [total] * len(ranks), reduction="sum")
        for ranks in second:
            inputs = [second_input(r) for r in ranks]
            made.call("all_reduce", f"b{ranks[0]}", ranks, inputs, [sum(inputs)] * len(ranks),
                      **{"reduction": "sum", **more})
            for rank in ranks:
                made.record(rank, "it0/grad/fc.weight/reduced", sum(inputs))
        return made

    def test_one_axis_after_the_other_is_how_it_is_done(self):
        x = [drawn(seed, 32) for seed in WORLD]
        tp = lambda r: x[r // 2 * 2] + x[r // 2 * 2 + 1]  # noqa: E731
        self.silent(self.two_axes(x, ([0, 1], [2, 3]), ([0, 2], [1, 3]), tp), PASSED, "twice")

    def test_one_axis_and_then_the_world(self):
        x = [drawn(seed, 32) for seed in WORLD]
        tp = lambda r: x[r // 2 * 2] + x[r // 2 * 2 + 1]  # noqa: E731
        result = self.run_check(self.two_axes(x, ([0, 1], [2, 3]), (WORLD,), tp), VIOLATED, "twice")
        self.assertIn(self.only(result)["ranks"], ([0, 1], [2, 3]))
        self.silent(self.two_axes(x, ([0, 1], [2, 3]), (WORLD,), tp, reduction="avg"), PASSED,
                    "twice")

    def test_a_mean_of_sums_is_right(self):
        x = [drawn(seed, 32) for seed in range(2)]
        made = Made(2, along("dp", 2))
        made.call("all_reduce", "dp", [0, 1], x, [sum(x)] * 2, reduction="sum")
        made.call("all_reduce", "dp", [0, 1], [sum(x)] * 2, [sum(x)] * 2, reduction="avg")
        self.silent(made, PASSED, "twice")

    def test_zeros_constants_and_few_numbers_tell_nothing(self):
        for values in (np.zeros(64, F32), np.full(64, 3, F32), drawn(1, 4)):
            made = Made(2, along("dp", 2))
            fresh = [drawn(7, 64), drawn(8, 64)]
            made.call("all_reduce", "dp", [0, 1], fresh, [sum(fresh)] * 2, reduction="sum")
            made.call("all_reduce", "dp", [0, 1], [values] * 2, [2 * values] * 2, reduction="sum")
            made.call("all_reduce", "dp", [0, 1], [2 * values] * 2, [4 * values] * 2,
                      reduction="sum")
            self.silent(made, PASSED, "twice")

    def test_reduce_scatter_then_all_gather_then_another_axis(self):
        x = [drawn(seed, 64) for seed in WORLD]
        made = Made(4, dp_tp)
        shards = {}
        for ranks in ([0, 2], [1, 3]):
            total = x[ranks[0]] + x[ranks[1]]
            shards[ranks[0]], shards[ranks[1]] = total[:32], total[32:]
            made.call("reduce_scatter", f"dp{ranks[0]}", ranks, [x[r] for r in ranks],
                      [shards[r] for r in ranks], reduction="sum")
        for ranks in ([0, 1], [2, 3]):
            inputs = [shards[r] for r in ranks]
            made.call("all_reduce", f"tp{ranks[0]}", ranks, inputs, [sum(inputs)] * 2,
                      reduction="sum")
        self.silent(made, PASSED, "twice")


class Scaled(CollectiveTest):
    def made(self, between: float, after: float, *, ranks: int = 2, first: str = "sum",
             others: float | None = None, dtype: str = "float32", spoilt: bool = False) -> Made:
        """The first result times `between` is summed again, that times `after` is the gradient.
        `others`: three more parameters, whose gradients are their only sums times that."""
        rounded = bfloat16 if dtype == "bfloat16" else F32
        made = Made(ranks, along("dp", ranks))
        members = list(range(ranks))
        x = [rounded(drawn(rank, 48)) for rank in members]
        result = rounded(sum(x) / (ranks if first == "avg" else 1))
        again = rounded(result * F32(between))
        if spoilt:
            again[7] *= F32(1.01)
        total = rounded(F32(ranks) * again)
        made.call("all_reduce", "dp", members, x, [result] * ranks, reduction=first, dtype=dtype)
        made.call("all_reduce", "dp", members, [again] * ranks, [total] * ranks, reduction="sum",
                  dtype=dtype)
        gradients = {"fc.weight": rounded(total * F32(after))}
        if others is not None:
            for number in range(3):
                x = [rounded(drawn(10 * number + rank + 10, 64)) for rank in members]
                made.call("all_reduce", "dp", members, x, [rounded(sum(x))] * ranks,
                          reduction="sum", dtype=dtype)
                gradients[f"{number}.weight"] = rounded(rounded(sum(x)) * F32(others))
        for name, gradient in gradients.items():
            for rank in members:
                made.record(rank, f"it0/grad/{name}/reduced", gradient, dtype)
        return made

    def found(self, code: int, *args, **more) -> dict:
        return self.only(self.run_check(self.made(*args, **more), code, "twice"))

    def test_taken_as_it_is(self):
        """N S, and N times a mean."""
        for first in ("sum", "avg"):
            found = self.found(VIOLATED, 1, 1, first=first)
            self.assertEqual(found["certainty"], "likely")
            self.assertEqual(found["evidence"]["what becomes of it"],
                             "it0/grad/fc.weight/reduced is 1 x the result")

    def test_a_division_before_or_after_it_may_be_that_of_a_mean_of_means(self):
        """S, N S, S: right if S was a mean already."""
        for ranks in (2, 3):
            for between, after in ((1, 1 / ranks), (1 / ranks, 1)):
                found = self.found(PASSED, between, after, ranks=ranks)
                self.assertEqual(found["certainty"], "possible")
                self.assertIn("it is the first result again", found["evidence"]["in the end"])
                self.assertIn(f"each addend counts {ranks} times", found["what"])

    def test_what_is_done_with_other_sums_tells(self):
        """S / N is what the others are, and this one is S."""
        for dtype in ("float32", "bfloat16"):
            for between, after in ((1, 1 / 3), (1 / 3, 1)):
                found = self.found(VIOLATED, between, after, ranks=3, others=1 / 3, dtype=dtype)
                self.assertEqual(found["certainty"], "likely")
                self.assertEqual(found["evidence"]["sum of its addends"],
                                 "counts 1 x in it, in nearly all other gradients 0.333 x")

    def test_what_comes_out_as_the_others_do_is_right(self):
        for between, after, others in ((1, 1 / 2, 1), (1 / 2, 1, 1), (1, 1 / 4, 1 / 2),
                                       (1 / 2, 1 / 2, 1 / 2)):
            self.silent(self.made(between, after, others=others), PASSED, "twice")
        self.silent(self.made(1, 1 / 3, ranks=3, first="avg", others=1 / 3), PASSED, "twice")

    def test_another_number_may_be_meant(self):
        """Gradients of experts, say, that are divided by other counts."""
        self.assertEqual(self.found(PASSED, 1, 1 / 8, others=1)["certainty"], "possible")

    def test_every_element_must_be_scaled_alike(self):
        self.only(self.run_check(self.made(1 / 2, 1), PASSED, "twice"))
        self.silent(self.made(1 / 2, 1, spoilt=True), PASSED, "twice")


class Buckets(CollectiveTest):
    """Gradients of several parameters lie behind each other in what is summed, as DDP's do."""

    NAMES = ("fc1.weight", "fc2.weight", "norm.weight")

    def made(self, after: float, bucket_again: bool) -> Made:
        made = Made(2, along("dp", 2))
        x = [[drawn(10 * rank + number, 40 + number) for number in range(3)] for rank in range(2)]
        sums = [x[0][number] + x[1][number] for number in range(3)]
        made.call("all_reduce", "dp", [0, 1], [np.concatenate(x[0]), np.concatenate(x[1])],
                  [np.concatenate(sums)] * 2, reduction="sum")
        for result in [np.concatenate(sums)] if bucket_again else [sums[1]]:
            made.call("all_reduce", "dp", [0, 1], [result] * 2, [2 * result] * 2, reduction="sum")
        for number, name in enumerate(self.NAMES):
            factor = 2 * after if bucket_again or number == 1 else 1
            for rank in range(2):
                made.record(rank, f"it0/grad/{name}/reduced", sums[number] * F32(factor))
        return made

    def test_one_of_a_bucket_is_summed_again(self):
        for after, code, certainty in ((1, VIOLATED, "likely"), (1 / 2, PASSED, "possible")):
            found = self.only(self.run_check(self.made(after, False), code, "twice"))
            self.assertEqual(found["certainty"], certainty)
            self.assertEqual(found["evidence"]["what becomes of it"],
                             f"it0/grad/fc2.weight/reduced is {after:g} x the result")

    def test_a_bucket_is_summed_again(self):
        for after, code, certainty in ((1, VIOLATED, "likely"), (1 / 2, PASSED, "possible")):
            found = self.only(self.run_check(self.made(after, True), code, "twice"))
            self.assertEqual(found["certainty"], certainty)
            self.assertEqual(found["evidence"]["what becomes of it"],
                             f"it0/grad/fc1.weight/reduced is {after:g} x the result")

    def test_a_bucket_that_is_summed_once(self):
        made = self.made(1, True)
        for rank in range(2):
            del made.rows[rank, 0][1]
        self.silent(made, PASSED, "twice")


if __name__ == "__main__":
    unittest.main()
