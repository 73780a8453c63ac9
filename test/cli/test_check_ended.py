# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of runs that hang, or end, in a collective."""
from __future__ import annotations

import json
import unittest

from made_checks import PASSED, VIOLATED, dp_tp
from made_collectives import CollectiveTest, Made

WORLD = [0, 1, 2, 3]
TP = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}
DP = {0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}
ASYNCHRONOUS, FAILED, BEGUN = 2, 8, 16


class Ended(CollectiveTest):
    def healthy(self) -> Made:
        """All have called on their groups, and gone on to the next iteration."""
        made = Made(4, dp_tp)
        for iteration in (0, 1):
            for axis in (TP, DP):
                for ranks in {tuple(ranks) for ranks in axis.values()}:
                    made.call("all_reduce", self.name(ranks), ranks, [None] * 2, [None] * 2,
                              reduction="sum", count=8, iteration=iteration, module="layer")
        return made

    @staticmethod
    def name(ranks) -> str:
        return "g" + "".join(map(str, ranks))

    def killed(self, *came, flags: int = BEGUN) -> Made:
        """`came`: pairs of an axis and the ranks that were in their group's call on it."""
        made = self.healthy()
        for axis, ranks in came:
            for rank in ranks:
                group = axis[rank]
                made.call("all_gather", self.name(group), group, [None] * 2, [None] * 2, count=8,
                          iteration=1, lost=[1 - group.index(rank)], flags=flags, module="block")
        made.incomplete = {(rank, 1) for rank in WORLD}
        return made

    def found(self, made: Made, code: int) -> dict:
        return self.only(self.run_check(made, code, "ended"))

    def test_calls_that_ended(self):
        self.assertEqual(self.silent(self.healthy(), PASSED, "ended")["compared"],
                         {"calls that ended": 8})

    def test_the_rank_that_never_came_is_at_the_end_of_the_chain(self):
        # 0 waits for 2 along dp, 2 and 1 wait for 3, who is nowhere.
        found = self.found(self.killed((DP, [0, 1]), (TP, [2])), PASSED)
        self.assertEqual((found["ranks"], found["certainty"], found["iteration"], found["module"]),
                         ([3], "possible", 1, "block"))
        self.assertRegex(found["what"], r"^all_gather, call 2 of group g13 \(ranks 1, 3; along dp\) "
                         r"in block: rank 1 ended in it, rank 3 never called it$")
        evidence = found["evidence"]
        self.assertRegex(evidence["nor 1"], r"^all_gather, call 2 of group g23 .*rank 2 ended in it$")
        self.assertRegex(evidence["rank 3 called last"], r"^all_reduce \(sum\), call 1 of group g13 "
                         r".* in layer, iteration 1$")
        self.assertEqual(evidence["rank 3 ended"],
                         "in iteration 1: its process was gone, or killed")

    def test_what_makes_it_sure(self):
        waited = self.killed((TP, [2]))
        for seconds, certainty in ((59, "possible"), (61, "likely")):
            waited.more = {2: {"running": [{"group": "g23", "member": 0, "sequence": 2,
                                            "seconds": seconds},
                                           {"group": "g02", "member": 1, "sequence": 2,
                                            "seconds": 1000}]}}
            found = self.found(waited, VIOLATED if certainty == "likely" else PASSED)
            self.assertEqual((found["certainty"], found["evidence"]["waited"]),
                             (certainty, f"{seconds} s"))
        failed = self.killed((TP, [2]), flags=FAILED)
        failed.more = {3: {"events": [{"what": "exception", "where": "iteration 1",
                                       "why": "ValueError('x')", "count": 1}]}}
        failed.incomplete = {(2, 1)}
        found = self.found(failed, VIOLATED)
        self.assertEqual((found["ranks"], found["certainty"], found["evidence"]["rank 3 ended"]),
                         ([3], "likely", "in iteration 1: ValueError('x')"))
        self.assertIn("it failed on rank 2, rank 3 never called it", found["what"])
        after = self.killed((TP, [2]))
        after.incomplete = {(2, 1)}
        for error, certainty in (("OSError()", "likely"), ("KeyboardInterrupt()", "possible")):
            after.more = {3: {"events": [{"what": "exception", "where": "after iteration 1",
                                          "why": error, "count": 1}]}}
            found = self.found(after, VIOLATED if certainty == "likely" else PASSED)
            self.assertEqual((found["certainty"], found["evidence"]["rank 3 ended"]),
                             (certainty, f"after iteration 1: {error}"))
        went_on = self.killed((TP, [2]))
        went_on.incomplete.remove((3, 1))
        found = self.found(went_on, VIOLATED)
        self.assertEqual((found["certainty"], found["evidence"]["rank 3 ended"]),
                         ("likely", "its recording goes to the end of iteration 1"))

    def test_what_was_queued_on_a_device_ended_for_the_host(self):
        found = self.found(self.killed(*[(TP, [2])] * 6, flags=0), PASSED)
        self.assertEqual((found["ranks"], found["certainty"]), ([3], "possible"))
        self.assertIn("call 2 of group g23", found["what"])  # the first that it waits for
        self.assertIn("rank 2 called it, rank 3 never called it", found["what"])
        self.assertEqual(found["evidence"]["nor"], "2 further calls")

    def test_ranks_that_wait_for_each_other(self):
        # 0 waits for 1 along tp, 1 for 3 along dp, 3 for 2 along tp, 2 for 0 along dp.
        found = self.found(self.killed((TP, [0, 3]), (DP, [1, 2])), VIOLATED)
        self.assertEqual((found["ranks"], found["certainty"]), (WORLD, "likely"))
        self.assertEqual(found["what"], "ranks wait for each other in different collectives")
        self.assertRegex(found["evidence"]["rank 0 ended in"],
                         r"^all_gather, call 2 of group g01 .*, which rank 1 never called$")
        self.assertEqual(len(found["evidence"]), 4)

    def test_what_is_not_waited_for_yet_makes_no_ring(self):
        # 0 has only begun what 1 lacks; what it waits for itself is 2's to come to.
        made = self.killed((TP, [0]), flags=BEGUN | ASYNCHRONOUS)
        for axis, rank in ((DP, 0), (DP, 1)):
            made.call("all_gather", self.name(axis[rank]), axis[rank], [None] * 2, [None] * 2,
                      count=8, iteration=1, lost=[1], flags=BEGUN, module="block")
        found = self.run_check(made, PASSED, "ended")["violations"]
        self.assertEqual(sorted(one["ranks"] for one in found), [[2], [3]])

    def test_a_receive_without_its_send(self):
        made = self.healthy()
        made.pair("pp", 4, (0, 0), (1, 1), [1.0], [1.0], iteration=1)
        made.pair("pp", 4, (0, 0), (1, 1), [1.0], None, iteration=1, lost=["send"])
        made.rows[1, 1][-1]["flags"] = BEGUN
        made.incomplete = {(rank, 1) for rank in WORLD}
        found = self.found(made, PASSED)
        self.assertEqual(found["ranks"], [0])
        self.assertIn("recv, call 1 of group pp", found["what"])

    def test_sends_do_not_count_for_who_came(self):
        # Rank 1 has made more calls on the group than the others, but not the one they wait for.
        made = Made(3)
        world = [0, 1, 2]
        made.call("all_reduce", "w", world, [None] * 3, [None] * 3, reduction="sum", count=8)
        for _ in range(3):
            made.pair("w", 3, (1, 1), (2, 2), [1.0], [1.0])
        made.call("all_gather", "w", world, [None] * 3, [None] * 3, count=8, lost=[1], flags=BEGUN)
        made.incomplete = {(rank, 0) for rank in world}
        self.assertEqual(self.found(made, PASSED)["ranks"], [1])

    def test_a_rank_whose_recording_ended_by_itself(self):
        # Iteration 1 was the last to be recorded: rank 3 may have called it later.
        for wanted, ranks in (([[0, 1]], []), ([[0, 5]], [[3]]), (None, [[3]])):
            made = self.killed((TP, [2]))
            made.incomplete.remove((3, 1))
            trace = self.write_ranks(f"wanted{wanted}.trace", made.described())
            document = json.loads((trace / "trace.json").read_text())
            document["options"] = {"iterations": wanted}
            (trace / "trace.json").write_text(json.dumps(document))
            found = self.check(trace, VIOLATED if ranks else PASSED, "ended")["ended"]
            self.assertEqual([one["ranks"] for one in found["violations"]], ranks)

    def test_what_says_nothing(self):
        all_came = self.silent(self.killed((TP, WORLD)), PASSED, "ended")
        self.assertEqual(all_came["not_checked"],
                         {"calls that the run ended in, and no member is missing": 2})
        lossy = self.killed((TP, [2]))
        lossy.more = {3: {"degraded": True}}
        self.silent(lossy, PASSED, "ended")
        self.silent(self.killed((TP, [2])), PASSED, "ended", present=[0, 1, 2])
        # Ended with its iteration: the program waits later, or never.
        late = self.killed((TP, [2]))
        late.incomplete = set()
        self.assertEqual(self.silent(late, PASSED, "ended")["not_checked"],
                         {"calls that were not seen to end in their iteration": 1})
        caught = self.killed((TP, [2]), flags=FAILED)
        caught.incomplete = set()
        self.assertEqual(self.silent(caught, PASSED, "ended")["not_checked"],
                         {"calls that returned an error": 1})


class OrderOfFailed(CollectiveTest):
    def test_a_failed_call_may_still_show_why(self):
        made = Made(2)
        made.call("all_reduce", "w", [0, 1], [None] * 2, [None] * 2, reduction="sum", count=8)
        made.rows[0, 0][-1].update(flags=FAILED)
        made.rows[1, 0][-1].update(flags=BEGUN, count=1)
        made.incomplete = {(0, 0), (1, 0)}
        found = self.only(self.run_check(made, VIOLATED, "order"))
        self.assertIn("its count (rank 1: 1 elements, rank 0: 8 elements)", found["what"])


if __name__ == "__main__":
    unittest.main()
