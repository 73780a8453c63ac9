# SPDX-License-Identifier: Apache-2.0
"""Three members that are threads of one process, beside a watchdog: scenarios_threads.cpp, `busy`.

usage: test_nccl_threads.py [CLIENT DEVICE_OPS], a program that has the recorder and the capture
library in it, and the device that it copies from; without them the recorder is preloaded.
"""
import subprocess
import sys
import unittest

from nccl_runs import (ASYNCHRONOUS, BUILD, CLIENT, COUNT, IN_GROUP, IN_PLACE, NcclTest, given)

OWN = sys.argv[1:]
ROUNDS = 4


def sums(members, tens, number):
    return [members * (1 + i + number) + tens for i in range(COUNT)]


def expected(member, number):
    """What a worker does in its n-th round: function, reduction, flags, output."""
    before = given((member + 2) % 3, start=number)
    some = sums(2, 20, number) if member % 2 == 0 else sums(1, 10, number)
    return [("all_reduce", "sum", IN_PLACE, sums(3, 30, number)),
            ("send", None, IN_GROUP, None),
            ("all_reduce", "max", IN_GROUP, sums(1, 20, number)),
            ("recv", None, IN_GROUP, before),
            ("all_reduce", "sum", 0, some),
            ("all_reduce", "premul_sum", 0, sums(1.5, 15, number)),
            ("all_reduce", "min", ASYNCHRONOUS, sums(1, 0, number))]


class Threads(NcclTest):
    def run_it(self):
        if not OWN:
            return self.capture([*CLIENT, "busy"], options=["--iterations", "0-"])
        env = self.environment(
            WORLD_SIZE="1", TTRACE_OUT=str(self.trace), TTRACE_COMM="full", TTRACE_LIB=OWN[0],
            TTRACE_ITERATIONS="0-", TTRACE_WRITER=str(BUILD / "capture" / "ttrace-writer"),
            TTRACE_DEVICE_OPS=OWN[1])
        env.pop("LD_PRELOAD", None)
        self.trace.mkdir()
        done = subprocess.run([OWN[0], "busy"], env=env, capture_output=True, text=True, timeout=240)
        self.assertEqual((done.returncode, done.stderr[:6000]), (0, ""))
        return done

    def test_calls_of_threads_that_work_at_the_same_time(self):
        self.run_it()
        calls = self.calls()
        self.assertEqual({call.module for call in calls}, {f"worker.{n}" for n in range(3)})
        groups = []
        for member in range(3):
            own = [call for call in calls if call.module == f"worker.{member}"]
            self.assertEqual([(c.function, c.reduction, c.flags, c.output) for c in own],
                             [row for n in range(ROUNDS) for row in expected(member, n)])
            for position, call in enumerate(own):
                if call.function != "recv":
                    self.assertEqual(call.input, given(member, start=position // 7))
                if position % 7 != 4:
                    self.assertEqual((call.member, call.size), (member, 3))
            # On the communicator over all 5 calls a round, on the one that does not block 1.
            self.assertEqual([c.sequence for c in own],
                             [at for n in range(ROUNDS)
                              for at in (5 * n, 5 * n + 1, 5 * n + 2, 5 * n + 3, 0, 5 * n + 4, n)])
            groups.append([call.group for call in own])
        some = [[names[7 * n + 4] for n in range(ROUNDS)] for names in groups]
        self.assertEqual(some[0], some[2])
        self.assertEqual(len(set(some[0] + some[1])), 2 * ROUNDS)
        for at in (0, 6):
            self.assertEqual(len({names[7 * n + at] for names in groups for n in range(ROUNDS)}), 1)
        self.assertGreater(len(list(self.trace.glob("rank*/it*.h5"))), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
