# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of who is in a group: as the mesh lies, or as it was meant."""
from __future__ import annotations

import unittest

from made_checks import PASSED, TROUBLE, VIOLATED, along, dp_tp, drawn
from made_collectives import CollectiveTest, Made

WORLD = [0, 1, 2, 3]


class Groups(CollectiveTest):
    def made(self, *groups, axes=dp_tp, world=4, function="reduce_scatter") -> Made:
        made = Made(world, axes)
        for number, ranks in enumerate(groups):
            made.call(function, f"g{number}", ranks, [None] * len(ranks), [None] * len(ranks))
        return made

    def test_lines_planes_and_single_ranks(self):
        made = self.made([0, 1], [2, 3], [0, 2], [1, 3], WORLD, [2])
        self.assertEqual(self.silent(made, PASSED, "groups")["compared"],
                         {"groups with the mesh": 5})

    def test_ranks_that_share_no_axis(self):
        """0 and 7 lie across a cube; of eight ranks no pattern of such pairs is regular."""
        cube = lambda rank: [{"name": n, "size": 2, "coord": rank // s % 2}  # noqa: E731
                             for n, s in (("pp", 4), ("dp", 2), ("tp", 1))]
        found = self.only(self.run_check(self.made([0, 3, 5], axes=cube, world=8), VIOLATED,
                                         "groups"))
        self.assertEqual((found["ranks"], found["certainty"]), ([0, 3, 5], "likely"))
        self.assertIn("do not stand along axes of the mesh; nearest are", found["what"])

    def test_an_axis_with_a_rank_left_out(self):
        made = self.made([0, 1, 2], axes=along("dp", 4), function="all_reduce")
        found = self.only(self.run_check(made, VIOLATED, "groups"))
        self.assertIn("has not all ranks along dp: these are ranks 0-3", found["what"])

    def test_halves_of_an_axis_and_ends_of_a_pipeline(self):
        self.silent(self.made([0, 1], [2, 3], axes=along("dp", 4)), PASSED, "groups")
        self.silent(self.made([0, 3], axes=along("pp", 4)), PASSED, "groups")

    def test_members_in_another_order_than_the_mesh(self):
        self.silent(self.made([1, 0], function="all_reduce"), PASSED, "groups")
        found = self.only(self.run_check(self.made([1, 0]), VIOLATED, "groups"))
        self.assertIn("members 0, 1, ... are ranks 1, 0", found["what"])
        self.silent(self.made([0, 2, 1, 3]), PASSED, "groups")  # dp within tp: an order, too

    def test_axes_that_overlap_tell_of_the_world_only(self):
        """Experts are cut over pairs of the four data parallel ranks."""
        axes = lambda rank: [{"name": "dp", "size": 4, "coord": rank},  # noqa: E731
                             {"name": "ep", "size": 2, "coord": rank % 2}]
        result = self.silent(self.made(WORLD, [0, 1], [0, 3], axes=axes), PASSED, "groups")
        self.assertEqual(result["compared"], {"groups with the mesh": 1})
        self.assertEqual(result["not_checked"], {"axes of the declared mesh overlap": 2})

    def test_without_a_mesh_nothing_is_said(self):
        result = self.silent(self.made([0, 3], axes=None), TROUBLE, "groups")
        self.assertEqual(result["not_checked"], {"no mesh was declared": 1})

    def test_stages_that_hold_other_parameters(self):
        """Three of six stages, as those of a decoder with an embedding of its own; whatever the
        axis is called. Of ranks that hold the same parameters it may be a mistake."""
        for names, found in ((lambda rank: [f"layers.{rank}.weight"], []),
                             (lambda rank: ["layer.weight"], ["possible"])):
            made = self.made([0, 2, 5], axes=along("position", 6), world=6, function="all_reduce")
            made.parameters = names
            result = self.run_check(made, PASSED, "groups")
            self.assertEqual([each["certainty"] for each in result["violations"]], found)


class LeftOut(CollectiveTest):
    """Four ranks hold a weight and sum its gradient; `groups`: who with whom."""

    def made(self, *groups, axes=along("rank", 4), guessed=True, start=lambda rank: 0,
             divisor=4) -> Made:
        made = Made(4, axes)
        made.guessed = guessed
        made.parameters = lambda rank: ["fc.weight"]
        gradient = {rank: drawn(10 + rank, 4, 8) for rank in WORLD}
        for rank in WORLD:
            made.record(rank, "it0/param/fc.weight/value", drawn(start(rank), 4, 8))
        for ranks in groups:
            x = [gradient[rank] for rank in ranks]
            for rank in ranks:
                gradient[rank] = sum(x)
            made.call("all_reduce", "g" + "".join(map(str, ranks)), ranks, x, [sum(x)] * len(ranks),
                      reduction="sum")
        for rank in WORLD:
            made.record(rank, "it0/grad/fc.weight/reduced", gradient[rank] / divisor)
        return made

    def certainty(self, made: Made, code: int = PASSED) -> list:
        self.result = self.run_check(made, code, "groups")
        return [found["certainty"] for found in self.result["violations"]]

    def test_a_rank_that_has_a_gradient_of_it_and_sums_with_nobody(self):
        for axes in (along("rank", 4), along("x", 4), dp_tp):
            self.assertEqual(self.certainty(self.made([0, 1, 2], axes=axes), VIOLATED), ["likely"])
            found = self.only(self.result)
            self.assertEqual(found["ranks"], [0, 1, 2])
            self.assertIn("rank 3 has a gradient of fc.weight, too", found["evidence"]["left out"])

    def test_everybody_takes_part(self):
        self.assertEqual(self.certainty(self.made(WORLD)), [])

    def test_a_rank_that_sums_with_others(self):
        """As programs do that exchange with a neighbour or two each time."""
        self.assertEqual(self.certainty(self.made([0, 1, 2], [2, 3])), ["possible"])

    def test_a_rank_that_holds_another_weight_of_this_name(self):
        other = self.made([0, 1, 2], start=lambda rank: rank == 3)
        self.assertEqual(self.certainty(other), ["possible"])

    def test_what_is_no_gradient_of_the_model(self):
        """`new_group([3, 1, 0])` in a program whose groups are all that is known of its mesh."""
        def made(guessed):
            made = self.made([0, 1], [2, 3], [0, 2], [1, 3], axes=dp_tp, guessed=guessed)
            x = [drawn(rank, 32) for rank in (0, 1, 3)]
            made.call("all_reduce", "odd", [0, 1, 3], x, [sum(x)] * 3, reduction="sum")
            return made

        self.assertEqual(self.certainty(made(True)), ["possible"])
        self.assertEqual(self.certainty(made(False), VIOLATED), ["likely"])

    def test_numbers_of_members_matter_only_where_parts_are_dealt_out(self):
        x = [drawn(rank, 32) for rank in (3, 1, 2, 0)]
        for guessed, code in ((False, VIOLATED), (True, PASSED)):  # by whose order?
            for function, result in (("all_reduce", [sum(x)] * 4),
                                     ("reduce_scatter", list(sum(x).reshape(4, 8)))):
                made = self.made(WORLD, guessed=guessed)
                made.call(function, "shuffled", [3, 1, 2, 0], x, result, reduction="sum")
                deals = function == "reduce_scatter"
                self.assertEqual(self.certainty(made, code if deals else PASSED),
                                 ["possible" if guessed else "likely"] * deals)


if __name__ == "__main__":
    unittest.main()
