# SPDX-License-Identifier: Apache-2.0
"""The real NCCL and CUDA runtime on one device: the programs that run on the fakes elsewhere, their
results, and what is recorded of them. test/gpu/nccl.sh runs it.

NCCL_LIBRARIES: folders with libnccl.so.2 and libcudart.so.13. NCCL_DEVICE_OPS: a stand-in for the
driver, to try this file on the fakes.
"""
import os
import unittest

from nccl_runs import CLIENT, COUNT, HIDDEN, IN_GROUP, IN_PLACE, NcclTest, given


class OneDevice(NcclTest):
    def environment(self, **settings):
        merged = {**super().environment(**settings), "LD_LIBRARY_PATH": os.environ["NCCL_LIBRARIES"]}
        merged["TTRACE_DEVICE_OPS"] = os.environ.get("NCCL_DEVICE_OPS", "")
        return merged

    def test_every_collective(self):
        for client in (CLIENT, HIDDEN):
            with self.subTest(client=client):
                self.setUp()
                self.capture([*client, "every_collective"])
                calls = self.calls()
                self.assertEqual([c.function for c in calls],
                                 ["all_reduce", "reduce", "broadcast", "reduce_scatter",
                                  "all_gather", "all_to_all", "gather", "scatter"])
                for call in calls:
                    self.assertEqual((call.input, call.output), (given(0), given(0)), call.function)

    def test_in_place(self):
        self.capture([*CLIENT, "in_place"])
        for call in self.calls():
            self.assertEqual((call.input, call.output, call.flags),
                             (given(0), given(0), IN_PLACE), call.function)

    def test_a_group_with_itself(self):
        self.capture([*CLIENT, "grouped"])
        send, add, most, receive = self.calls()
        self.assertEqual((send.input, receive.output), (given(0, 100_000), given(0, 100_000)))
        self.assertEqual((add.output, most.output), (given(0), given(0)))
        self.assertEqual({c.flags for c in self.calls()}, {IN_GROUP})

    def test_premultiplied_sums(self):
        self.capture([*CLIENT, "scaled"])
        half, triple = self.calls()
        self.assertEqual(half.output, [value / 2 for value in given(0)])
        self.assertEqual(triple.output, [value * 3 for value in given(0)])

    def test_a_communicator_that_does_not_block(self):
        self.capture([*CLIENT, "non_blocking"])
        self.assertEqual([(c.output, c.count) for c in self.calls()], [(given(0), COUNT)] * 2)

    def test_types(self):
        self.capture([*CLIENT, "types"])
        self.assertEqual(len(self.calls()), 6 * 4)


if __name__ == "__main__":
    unittest.main()
