#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed under --comm: rows, buffers, and that nothing else changes."""
import unittest

import numpy
import torch

from agent_runs import PROGRAMS, CaptureTest, Trace, forked, torchrun
from collective_rows import (ASYNCHRONOUS, BEGUN, FAILED, IN_GROUP, IN_PLACE, calls, collectives,
                             outcome)


def mine(rank, count, scale=1):
    return numpy.arange(1, count + 1, dtype=numpy.float32) * (rank + 1) * scale


class Collectives(CaptureTest):
    def traced(self, mode, ranks=2, comm="full", launcher=None, options=(),
               program="collective_calls.py"):
        """The trace; what the program computes is what it computes without capture."""
        name = f"{program[:-3]}{mode}{ranks}{comm}"
        if (self.scratch / name).exists():
            return Trace(self.scratch / name)
        trace, self.done = self.capture(
            name, program, mode, f"{name}.pt", ranks=ranks, launcher=launcher,
            options=["--iterations", "0-1", *(["--comm", comm] if comm else []), *options])
        plain = self.run_command([*forked(ranks), PROGRAMS / "collective_calls.py", mode,
                                  f"plain.{name}"])
        self.assertEqual(self.done.stdout, plain.stdout)
        for rank in range(ranks):
            self.assert_same_bits(torch.load(self.scratch / f"{name}.pt.{rank}"),
                                  torch.load(self.scratch / f"plain.{name}.{rank}"), mode)
            self.assertFalse(trace.rank(rank).get("degraded", False))
        return trace

    def assert_outcomes(self, trace, ranks, iterations=2):
        """Members agree on each call, and what came out is what NumPy makes of what went in."""
        compared = 0
        for iteration in range(iterations):
            for where, members in calls(trace, iteration, ranks).items():
                first = next(iter(members.values()))
                self.assertEqual(sorted(members), list(range(first.size)), where)
                for number, row in members.items():
                    same = ("function", "reduction", "size", "peer", "module", "microbatch",
                            "dtype")
                    self.assertEqual([getattr(row, name) for name in same],
                                     [getattr(first, name) for name in same], where)
                    if any(other.records == [None, None] for other in members.values()):
                        continue  # objects, barriers
                    wanted = outcome(members, number)
                    if wanted is None:
                        self.assertIsNone(row.output, (where, row))
                        continue
                    numpy.testing.assert_array_equal(row.output.reshape(-1), wanted.reshape(-1),
                                                     f"{where} {row.function}")
                    compared += 1
        return compared

    def of(self, trace, rank, iteration=0, module=None):
        return [row for row in collectives(trace, iteration, rank)
                if module is None or row.module == module]

    # ---- by hand ----

    def check_by_hand(self, ranks, launcher=None, program="collective_calls.py"):
        trace = self.traced("hand", ranks, launcher=launcher, program=program)
        self.assertGreater(self.assert_outcomes(trace, ranks), 20 * ranks)
        for rank in range(ranks):
            self.check_reductions(trace, rank, ranks)
            self.check_gathers(trace, rank, ranks)
            self.check_pairs(trace, rank, ranks)
            self.assertEqual(trace.rank(rank)["groups"]["0"], list(range(ranks)))
        self.assertEqual(trace.rank(0)["groups"]["1"], [0, 1])
        return trace

    def check_reductions(self, trace, rank, ranks):
        rows = self.of(trace, rank, module="reductions")
        if rank > 1:
            self.assertEqual([row.group for row in rows], ["0"] * 3)
            return
        self.assertEqual([(row.function, row.reduction, row.group, row.size, row.peer, row.flags)
                          for row in rows],
                         [("all_reduce", "sum", "0", ranks, -1, IN_PLACE),
                          ("all_reduce", "max", "1", 2, -1, IN_PLACE),
                          ("all_reduce", "min", "0", ranks, -1, IN_PLACE | ASYNCHRONOUS),
                          ("broadcast", "", "0", ranks, 1, rank == 1),
                          ("reduce", "sum", "1", 2, 1, rank == 1)])
        numpy.testing.assert_array_equal(rows[0].input, mine(rank, 3))
        numpy.testing.assert_array_equal(rows[1].output, mine(1, 3))
        numpy.testing.assert_array_equal(rows[2].output, mine(0, 3))
        numpy.testing.assert_array_equal(rows[3].output, mine(1, 2))
        self.assertEqual([row.member for row in rows], [rank] * 5)
        self.assertEqual([row.microbatch for row in rows], [0] * 5)

    def check_gathers(self, trace, rank, ranks):
        rows = self.of(trace, rank, module="gathers")
        self.assertEqual([(row.function, row.peer, row.count) for row in rows],
                         [("all_gather", -1, 2), ("all_gather", -1, 2), ("reduce_scatter", -1, 2),
                          ("gather", 0, 2), ("scatter", 1, 2), ("all_to_all", -1, 2),
                          ("all_to_all", -1, 0)])
        whole = numpy.concatenate([mine(other, 2) for other in range(ranks)])
        for row in rows[:2]:
            numpy.testing.assert_array_equal(row.output, whole)
        summed = sum(mine(other, 2 * ranks) for other in range(ranks))
        numpy.testing.assert_array_equal(rows[2].output, summed[2 * rank:2 * rank + 2])
        if rank == 0:
            numpy.testing.assert_array_equal(rows[3].output, whole)
        numpy.testing.assert_array_equal(rows[4].output, mine(1, 2, rank + 1))
        self.assertEqual(rows[6].input_splits, ",".join(["4"] + ["2"] * (ranks - 1)))
        self.assertEqual(rows[6].output_splits, "")
        start, end = (0, 4) if rank == 0 else (2 + 2 * rank, 4 + 2 * rank)
        numpy.testing.assert_array_equal(rows[6].output.reshape(-1), numpy.concatenate(
            [mine(other, 2 * (ranks + 1))[start:end] for other in range(ranks)]))

    def check_pairs(self, trace, rank, ranks):
        rows = self.of(trace, rank, module="pairs")
        first = [row for row in rows if row.function in ("send", "recv")
                 and not row.flags & IN_GROUP]
        if rank < 2:
            self.assertEqual([(row.function, row.peer, row.flags, row.count) for row in first],
                             [("send" if rank == 0 else "recv", 1 - rank, 0, 2),
                              ("send" if rank == 0 else "recv", 1 - rank, ASYNCHRONOUS, 3)])
            for row in first:
                value = row.input if rank == 0 else row.output
                numpy.testing.assert_array_equal(value, mine(0, row.count))
        else:
            self.assertEqual(first, [])
        send, receive = [row for row in rows if row.function in ("send", "recv")
                         and row.flags & IN_GROUP]
        self.assertEqual((send.peer, receive.peer), ((rank + 1) % ranks, (rank - 1) % ranks))
        numpy.testing.assert_array_equal(send.input, mine(rank, 4))
        numpy.testing.assert_array_equal(receive.output, mine((rank - 1) % ranks, 4))
        self.assertEqual((send.output, receive.input), (None, None))
        objects = [row for row in rows if row.function == "all_gather"]
        self.assertEqual([row.records for row in objects], [[None, None]] * len(objects))
        self.assertGreaterEqual(len(objects), 2)  # sizes, then bytes
        together = [row for row in rows if row.function == "all_reduce"]
        self.assertEqual([row.flags & IN_GROUP for row in together], [IN_GROUP] * 2)
        for row, count in zip(together, (2, 3)):
            numpy.testing.assert_array_equal(
                row.output, sum(mine(other, count) for other in range(ranks)))
        self.assertEqual((rows[-1].function, rows[-1].count), ("barrier", 0))

    def test_functions_called_by_hand(self):
        trace = self.check_by_hand(2, torchrun(2))
        rows = self.of(trace, 0)
        sequences = {}
        for row in rows:
            self.assertEqual(row.sequence, sequences.get(row.group, row.sequence))
            sequences[row.group] = row.sequence + 1
        self.assertEqual(rows[0].sequence, 1)  # one was before the first iteration
        self.assertEqual(min(row.sequence for row in rows if row.group == "1"), 0)
        later = self.of(trace, 0, 1)
        self.assertEqual(min(row.sequence for row in later if row.group == "0"), sequences["0"])

    def test_functions_called_by_hand_on_four_ranks(self):
        self.check_by_hand(4)

    def test_keys_and_positions_of_the_buffers(self):
        trace = self.traced("hand")
        segment = trace.segment(0, 0)
        self.assertIn("mb0/comm/reductions/all_reduce.input", segment.keys("comm"))
        self.assertIn("mb0/comm/reductions/all_reduce#2/all_reduce.output".replace(
            "/all_reduce#2/", "#2/"), segment.keys("comm"))
        entered = segment["mb0/forward/first/output.0"].sequence
        left = segment["mb0/forward/reductions/output.0"].sequence
        for row in self.of(trace, 0, module="reductions"):
            self.assertTrue(entered < row.position <= left, row)
            for record in filter(None, row.records):
                self.assertGreaterEqual(record.sequence, row.position)
                self.assertEqual((record.phase, record.module), ("comm", "reductions"))

    def test_metadata_and_hashes(self):
        full = self.traced("hand")
        for comm in ("metadata", "hash"):
            trace = self.traced("hand", comm=comm)
            for iteration in range(2):
                for rank in range(2):
                    rows, whole = (self.of(each, rank, iteration) for each in (trace, full))
                    names = ("group", "function", "reduction", "module", "sequence", "member",
                             "peer", "count", "flags", "dtype", "input_splits", "output_splits")
                    self.assertEqual([[getattr(row, name) for name in names] for row in rows],
                                     [[getattr(row, name) for name in names] for row in whole])
            records = [row for row in trace.segment(0, 0).rows if row.phase == "comm"]
            self.assertEqual({record.kind for record in records},
                             {"hash"} if comm == "hash" else set())
            kept = {record.key: record.hash for record in records}
            self.assertEqual(kept, {record.key: record.hash for record in
                                    full.segment(0, 0).rows if record.phase == "comm"}
                             if comm == "hash" else {})

    # ---- by others ----

    def test_functional_collectives(self):
        trace = self.traced("functional")
        self.assertGreaterEqual(self.assert_outcomes(trace, 2), 2 * 2 * 3)
        rows = self.of(trace, 1)
        self.assertEqual([row.function for row in rows[:3]],
                         ["all_reduce", "all_gather", "reduce_scatter"])
        numpy.testing.assert_array_equal(rows[0].output, mine(0, 3) + mine(1, 3))
        numpy.testing.assert_array_equal(rows[2].output, (mine(0, 4) + mine(1, 4))[2:])

    def check_ddp(self, mode, ranks):
        """Each row of the last layer's gradient is the mean over ranks of what went into it."""
        trace = self.traced(mode, ranks)
        self.assert_outcomes(trace, ranks)
        weight = numpy.arange(1, 17, dtype=numpy.float32).reshape(4, 4) / 8
        for rank in range(ranks):
            buckets = [row for row in self.of(trace, rank, 0) if row.function == "all_reduce"
                       and row.count >= 16 and row.dtype == 1]
            self.assertEqual(sum(row.count for row in buckets), 32)
            values = numpy.concatenate([row.input.reshape(-1) for row in buckets])
            x = numpy.arange(1, 9, dtype=numpy.float32).reshape(2, 4) * (rank + 1)
            last = numpy.tile((x @ weight.T).sum(0), (4, 1)) / ranks
            first = numpy.outer(weight.sum(0), x.sum(0)) / ranks
            self.assertEqual(sorted(values.tolist()),
                             sorted([*last.reshape(-1).tolist(), *first.reshape(-1).tolist()]))
            self.assertTrue(all(row.flags & ASYNCHRONOUS for row in buckets))

    def test_buckets_of_ddp(self):
        self.check_ddp("ddp", 2)

    def test_buckets_of_ddp_on_four_ranks(self):
        self.check_ddp("ddp", 4)

    def test_buckets_of_ddp_with_a_static_graph(self):
        self.check_ddp("static", 2)

    def test_buffers_of_ddp_before_the_module_changes_them(self):
        trace = self.traced("buffers")
        self.assert_outcomes(trace, 2)
        for iteration in range(2):
            # Running means, variances and the number of batches, which the forward pass adds to.
            counted = [row for row in self.of(trace, 1, iteration)
                       if row.function == "broadcast" and row.dtype == 9 and row.count == 1]
            self.assertEqual([row.output.item() for row in counted], [iteration])

    def test_compiled_code(self):
        trace = self.traced("compiled")
        self.assertEqual(self.assert_outcomes(trace, 2), 2 * 2 * 2)
        rows = self.of(trace, 1)
        self.assertEqual([row.reduction for row in rows], ["sum", "max"])
        weight = numpy.arange(1, 10, dtype=numpy.float32).reshape(3, 3) / 8
        x = numpy.arange(1, 7, dtype=numpy.float32).reshape(2, 3)
        numpy.testing.assert_array_equal(rows[0].output, (x + 2 * x) @ weight.T)
        numpy.testing.assert_array_equal(rows[1].output, 2 * x)

    def check_fsdp(self, ranks):
        trace = self.traced("fsdp", ranks)
        self.assert_outcomes(trace, ranks)
        weight = numpy.arange(1, 17, dtype=numpy.float32) / 8
        for rank in range(ranks):
            rows = self.of(trace, rank, 0)
            gathered = [row for row in rows if row.function == "all_gather"]
            scattered = [row for row in rows if row.function == "reduce_scatter"]
            self.assertTrue(gathered and scattered)
            found = numpy.concatenate([row.output.reshape(-1) for row in gathered])
            self.assertEqual(set(found.tolist()), set(weight.tolist()))
            self.assertTrue(any(row.module for row in gathered))
            x = sum(numpy.arange(1, 9, dtype=numpy.float32).reshape(2, 4) * (other + 1)
                    for other in range(ranks))
            first = numpy.outer(weight.reshape(4, 4).sum(0), x.sum(0))
            total = numpy.concatenate([row.output.reshape(-1) for row in scattered])
            share = 4 // ranks
            mean = (first / ranks)[rank * share:(rank + 1) * share].reshape(-1)
            for value in mean:
                self.assertIn(value, total)

    def test_fsdp2(self):
        self.check_fsdp(2)

    def test_fsdp2_on_four_ranks(self):
        self.check_fsdp(4)

    def test_tensor_parallel_dtensors(self):
        trace = self.traced("tp")
        self.assertGreater(self.assert_outcomes(trace, 2), 0)
        weight = numpy.arange(1, 17, dtype=numpy.float32).reshape(4, 4) / 8
        x = numpy.arange(1, 9, dtype=numpy.float32).reshape(2, 4)
        for rank in range(2):
            row = next(row for row in self.of(trace, rank, 0) if row.function == "all_reduce")
            numpy.testing.assert_array_equal(row.output, x @ weight.T @ weight.T)
            numpy.testing.assert_array_equal(
                row.input, (x @ weight.T)[:, 2 * rank:2 * rank + 2]
                @ weight[:, 2 * rank:2 * rank + 2].T)

    def test_stages_of_a_pipeline(self):
        trace = self.traced("pipeline", 4)
        weight = numpy.arange(1, 10, dtype=numpy.float32).reshape(3, 3) / 8
        value = numpy.arange(1, 7, dtype=numpy.float32).reshape(2, 3)
        for rank in range(4):
            rows = {row.function: row for row in self.of(trace, rank, 0)}
            if rank > 0:
                self.assertEqual(rows["recv"].peer, rank - 1)
                numpy.testing.assert_array_equal(rows["recv"].output, value)
            value = value @ weight.T
            if rank < 3:
                self.assertEqual(rows["send"].peer, rank + 1)
                numpy.testing.assert_array_equal(rows["send"].input, value)

    # ---- when ----

    def test_outputs_are_those_at_the_end_of_the_collective(self):
        trace = self.traced("late")
        for iteration in range(2):
            for rank in range(2):
                rows = [row for row in self.of(trace, rank, iteration)
                        if row.function == "all_reduce"]
                for row, count in zip(rows, (3, 4, 5, 6), strict=True):
                    numpy.testing.assert_array_equal(row.output, mine(0, count) + mine(1, count))
        kept = self.of(trace, 1, 0)[-1]
        self.assertEqual((kept.function, kept.output, kept.flags),
                         ("recv", None, ASYNCHRONOUS | BEGUN))
        self.assertIn(("not recorded", "comm/@root/recv.output"), trace.events(1))

    def test_a_refused_call_is_a_row_that_says_so(self):
        trace = self.traced("failing")  # the same exceptions, says the output
        for rank in range(2):
            rows = self.of(trace, rank)
            self.assertEqual([(row.function, row.flags & FAILED) for row in rows],
                             [("all_gather", FAILED), ("all_reduce", FAILED), ("all_reduce", 0),
                              ("all_reduce", 0)])
            self.assertEqual([row.output is None for row in rows], [True, True, False, True])
            self.assertIn(("not recorded", "@root/all_reduce.output"), trace.events(rank))  # sparse

    def test_a_lost_peer_is_the_same_error(self):
        for mode in ("blocking", "asynchronous", "functional", "ddp"):
            trace, done = self.capture(f"lost_{mode}", "lost_peer.py", mode, ranks=2,
                                       options=["--comm", "full"])
            plain = self.run_command([*forked(2), PROGRAMS / "lost_peer.py", mode])
            self.assertIn("RuntimeError", plain.stdout)
            self.assertEqual(done.stdout, plain.stdout)
            last = self.of(trace, 0)[-1]
            self.assertEqual((last.function, last.flags & FAILED, last.output),
                             ("all_reduce", FAILED, None))

    # ---- with an older torch ----

    def test_calls_from_python_where_no_kernel_can_be_placed(self):
        trace = self.check_by_hand(2, torchrun(2), "without_kernels.py")
        self.assertIn(("not recorded", "collectives that C++ calls"), trace.events(0))
        for mode in ("late", "ddp", "failing"):
            trace = self.traced(mode, launcher=torchrun(2), program="without_kernels.py")
            rows = [row.function for row in self.of(trace, 0)]
            self.assertEqual("all_reduce" in rows, mode != "ddp", rows)
            if mode != "failing":
                self.assert_outcomes(trace, 2)

    def test_nothing_without_comm(self):
        trace = self.traced("ddp", comm="")
        for rank in range(2):
            self.assertEqual(self.of(trace, rank), [])
            self.assertEqual([row for row in trace.segment(0, rank).rows if row.phase == "comm"],
                             [])


if __name__ == "__main__":
    unittest.main()
