# SPDX-License-Identifier: Apache-2.0
"""NCCL's calls in the trace, against the fake library: every call once, with what went in and what
came out worked out by hand, results of the program unchanged, programs unharmed.
"""
import math
import os
import pathlib
import subprocess
import sys
import unittest

from nccl_runs import (ASYNCHRONOUS, BEGUN, BUILD, CLIENT, COUNT, FAILED, FAKE, HERE, HIDDEN,
                       IN_GROUP, IN_PLACE, SANITIZER, NcclTest, given, preload, total)

RECORDER = BUILD / "capture" / "nccl" / "libttrace_nccl.so"


class EveryCollective(NcclTest):
    """Two ranks; the root of reduce, broadcast and gather is 1, that of scatter 0."""

    def expected(self, rank):
        mine, wide, last = given(rank), given(rank, 2 * COUNT), rank == 1
        both = given(0) + given(1)
        part = rank * COUNT
        return [
            ("all_reduce", "sum", -1, mine, total(2)),
            ("reduce", "max", 1, mine, given(1) if last else None),
            ("broadcast", None, 1, mine if last else None, given(1)),
            ("reduce_scatter", "sum", -1, wide, total(2, start=part)),
            ("all_gather", None, -1, mine, both),
            ("all_to_all", None, -1, wide, given(0, start=part) + given(1, start=part)),
            ("gather", None, 1, mine, both if last else None),
            ("scatter", None, 0, wide if rank == 0 else None, given(0, start=part))]

    def check(self, client, **settings):
        self.capture([*client, "every_collective"], ranks=2, **settings)
        for rank in (0, 1):
            calls = self.calls(rank)
            self.assertEqual([(c.function, c.reduction, c.peer, c.input, c.output) for c in calls],
                             self.expected(rank))
            self.assertEqual([c.sequence for c in calls], list(range(8)))
            self.assertEqual({(c.member, c.size, c.count, c.flags, c.factor, c.module)
                              for c in calls}, {(rank, 2, COUNT, 0, 1.0, None)})
        self.assertEqual(len({c.group for rank in (0, 1) for c in self.calls(rank)}), 1)

    def test_a_program_linked_with_nccl(self):
        self.check(CLIENT)
        self.assertEqual(self.calls()[0].input_key, ("@root", "all_reduce.input", 0, -1, 6, 0))
        self.assertEqual(self.calls()[0].output_key, ("@root", "all_reduce.output", 0, -1, 6, 0))
        self.assertEqual([c.position for c in self.calls()], [0, 2, 3, 4, 6, 8, 10, 11])
        self.assertEqual(self.rank_json()["events"], [])

    def test_a_library_out_of_the_global_scope(self):
        self.check(HIDDEN)

    def test_streams_that_run_late(self):
        self.check(CLIENT, FAKE_CUDA_LAZY="1")

    def test_hashes_only(self):
        self.capture([*CLIENT, "every_collective"], ranks=2, comm="hash")
        calls = self.calls()
        self.assertEqual([(c.function, c.input, c.output) for c in calls],
                         [(name, i and "hash", o and "hash")
                          for name, _, _, i, o in self.expected(0)])

    def test_calls_only(self):
        self.capture([*CLIENT, "every_collective"], ranks=2, comm="metadata")
        segment = self.segment()
        self.assertEqual([(c.function, c.input, c.output, c.position) for c in segment.calls],
                         [(name, None, None, 0) for name, *_ in self.expected(0)])
        self.assertEqual(len(segment.index), 0)


class Calls(NcclTest):
    def test_in_place(self):
        self.capture([*CLIENT, "in_place"], ranks=2)
        for rank in (0, 1):
            reduce, gather, scatter, bcast = self.calls(rank)
            self.assertEqual([c.flags for c in (reduce, gather, scatter, bcast)], [IN_PLACE] * 4)
            self.assertEqual((reduce.input, reduce.output), (given(rank), total(2)))
            self.assertEqual((gather.input, gather.output), (given(rank), given(0) + given(1)))
            self.assertEqual((scatter.input, scatter.output),
                             (given(rank, 2 * COUNT), total(2, start=rank * COUNT)))
            self.assertEqual((bcast.function, bcast.peer, bcast.output), ("broadcast", 0, given(0)))

    def test_a_group(self):
        self.capture([*CLIENT, "grouped"], ranks=2)
        for rank in (0, 1):
            send, add, most, receive = self.calls(rank)
            self.assertEqual([c.function for c in (send, add, most, receive)],
                             ["send", "all_reduce", "all_reduce", "recv"])
            self.assertEqual({c.flags for c in self.calls(rank)}, {IN_GROUP})
            self.assertEqual((send.peer, receive.peer), (1 - rank, 1 - rank))
            self.assertEqual((send.input, send.output), (given(rank, 100_000), None))
            self.assertEqual((receive.input, receive.output), (None, given(1 - rank, 100_000)))
            self.assertEqual((add.output, most.reduction, most.output),
                             (total(2), "max", given(1)))
            self.assertEqual(most.output_key[:3], ("@root", "all_reduce.output", 1))

    def test_communicators_that_divide(self):
        self.capture([*CLIENT, "split"], ranks=4)
        half = [self.calls(rank)[0] for rank in range(4)]
        self.assertEqual(half[0].group, half[2].group)
        self.assertEqual(half[1].group, half[3].group)
        self.assertNotEqual(half[0].group, half[1].group)
        self.assertEqual([(c.member, c.size) for c in half], [(1, 2), (1, 2), (0, 2), (0, 2)])
        inner = [self.calls(rank)[1] for rank in (1, 2)]
        self.assertEqual(inner[0].group, inner[1].group)
        self.assertNotIn(inner[0].group, {c.group for c in half})
        self.assertEqual([(c.member, c.size) for c in inner], [(0, 2), (1, 2)])
        self.assertEqual([len(self.calls(rank)) for rank in range(4)], [1, 2, 2, 1])

    def test_a_communicator_that_grows(self):
        self.capture([*CLIENT, "grow"], ranks=3)
        calls = [self.calls(rank)[-1] for rank in range(3)]
        self.assertEqual(len({c.group for c in calls}), 1)
        self.assertEqual([(c.member, c.size, c.output) for c in calls],
                         [(rank, 3, total(3)) for rank in range(3)])

    def test_communicators_that_do_not_block(self):
        for lazy in ("0", "1"):
            with self.subTest(lazy=lazy):
                self.setUp()
                self.capture([*CLIENT, "non_blocking"], ranks=2, FAKE_CUDA_LAZY=lazy)
                for rank in (0, 1):
                    add, gather = self.calls(rank)
                    self.assertEqual((add.input, add.output), (given(rank), total(2)))
                    self.assertEqual(gather.output, given(0) + given(1))
                    self.assertEqual(add.flags, ASYNCHRONOUS)
                    self.assertEqual(gather.flags, ASYNCHRONOUS | IN_GROUP)
                    self.assertEqual((add.member, add.size), (rank, 2))

    def test_a_call_that_another_thread_asked_about(self):
        self.capture([*CLIENT, "asked_elsewhere"], FAKE_NCCL_SLOW_ANSWER_MS="100")
        self.assertEqual([(c.input, c.output) for c in self.calls()], [(given(0), given(0))])

    def test_calls_that_nobody_asked_about(self):
        self.capture([*CLIENT, "left_waiting"], ranks=1)
        destroyed, aborted = self.calls()
        self.assertEqual((destroyed.input, destroyed.output, destroyed.flags),
                         (given(0), given(0), IN_PLACE | ASYNCHRONOUS))
        self.assertEqual((aborted.input, aborted.output, aborted.flags),
                         (given(0), None, IN_PLACE | ASYNCHRONOUS | FAILED))

    def test_memory_of_the_host_that_streams_fill(self):
        for lazy in ("0", "1"):
            with self.subTest(lazy=lazy):
                self.setUp()
                self.capture([*CLIENT, "host_memory"], ranks=2, FAKE_CUDA_LAZY=lazy)
                for rank in (0, 1):
                    self.assertEqual([(c.input, c.output) for c in self.calls(rank)],
                                     [(given(rank), total(2))] * 4)  # pinned, managed; two streams

    def test_premultiplied_sums(self):
        self.capture([*CLIENT, "scaled"], ranks=2)
        half, triple = self.calls()
        self.assertEqual((half.reduction, half.factor), ("premul_sum", 0.5))
        self.assertEqual(half.output, [value / 2 for value in total(2)])
        self.assertEqual(triple.reduction, "premul_sum")
        self.assertTrue(math.isnan(triple.factor))  # it is on the device
        self.assertEqual(triple.output, [value * 3 for value in total(2)])

    def test_types(self):
        self.capture([*CLIENT, "types"], ranks=1)
        calls = self.calls()
        self.assertEqual(len(calls), 6 * 4)
        self.assertEqual([c.reduction for c in calls[:4]], ["sum", "prod", "min", "avg"])
        for call in (calls[4], calls[8], calls[16], calls[20]):  # without bfloat16
            self.assertEqual(call.output, [1, 2, 3, 1, 2])

    def test_failed_calls(self):
        self.capture([*CLIENT, "errors"], ranks=1)
        good, bad = self.calls()
        self.assertEqual((good.flags, good.sequence), (IN_PLACE, 0))
        self.assertEqual((bad.function, bad.flags, bad.peer, bad.output, bad.sequence),
                         ("broadcast", IN_PLACE | FAILED, -1, None, 1))

    def test_threads(self):
        self.capture([*CLIENT, "threads"], ranks=1)
        calls = self.calls()
        self.assertEqual(len({c.group for c in calls}), 1)
        for member in range(4):
            own = [c for c in calls if c.member == member]
            self.assertEqual([c.sequence for c in own], list(range(20)))
            for call in own:
                start = 1 + call.sequence
                self.assertEqual(call.input, [10 * member + start + i for i in range(COUNT)])
                self.assertEqual(call.output, [60 + 4 * (start + i) for i in range(COUNT)])


class Marks(NcclTest):
    def test_scopes_micro_batches_and_iterations(self):
        self.capture([*CLIENT, "marks"], ranks=2, options=["--iterations", "0-1"])
        for iteration in (0, 1):
            calls = self.calls(1, iteration)
            self.assertEqual([(c.module, c.microbatch) for c in calls],
                             [(module, microbatch) for microbatch in (0, 1)
                              for module in ("layers.0", "layers.0.attention")] +
                             [(None, 0), (None, 1)])
            self.assertEqual([(c.input_key[2:4], c.output_key[2:4]) for c in calls],
                             [((0, c.microbatch), (0, c.microbatch)) for c in calls])
            # 2 calls before the first iteration, 1 after each: counted, not recorded.
            self.assertEqual([c.sequence for c in calls],
                             [2 + 7 * iteration + i for i in range(6)])
            self.assertEqual({c.input_key[0] for c in calls},
                             {"layers.0", "layers.0.attention", "@root"})
        self.assertFalse(self.rank_json()["degraded"])

    def test_an_iteration_that_is_left_out(self):
        self.capture([*CLIENT, "marks"], ranks=1, options=["--iterations", "1"])
        self.assertEqual([c.sequence for c in self.calls(0, 1)], [9, 10, 11, 12, 13, 14])
        self.assertEqual(len(list(self.trace.glob("rank*/it*.h5"))), 1)


    def test_calls_of_a_pause_are_counted_only(self):
        self.capture([*CLIENT, "pausing"])
        self.assertEqual([(c.reduction, c.sequence, c.output) for c in self.calls()],
                         [("max", 0, given(0)), ("sum", 1, given(0)), ("min", 4, given(0))])
        self.assertEqual(self.rank_json()["events"], [])


class Process(NcclTest):
    def test_a_missing_wait_stays_visible(self):
        self.capture([*CLIENT, "missing_wait"], ranks=2, FAKE_CUDA_LAZY="1")
        self.assertEqual(self.calls()[0].output, total(2))

    def test_a_call_that_hangs_is_there(self):
        for comm in ("metadata", "full"):
            with self.subTest(comm):
                self.setUp()
                self.capture(["timeout", "-s", "KILL", "4", *CLIENT, "hangs"], ranks=2, comm=comm,
                             code=247, FAKE_CUDA_LAZY="1")
                first, second = self.calls(0)
                self.assertEqual((first.flags, first.sequence), (IN_PLACE, 0))
                # What NCCL has queued has ended, for a host.
                full = comm == "full"
                self.assertEqual(second.flags, IN_PLACE | (BEGUN if full else 0))
                self.assertEqual(second.input, total(2) if full else None)
                for running in self.rank_json(0).get("running", []):
                    self.assertEqual((running["group"], running["member"], running["sequence"]),
                                     (second.group, 0, 1))
                    self.assertTrue(1 < running["seconds"] < 5, running)
                self.assertEqual("running" in self.rank_json(0), full)
                self.assertEqual([c.sequence for c in self.calls(1)], [0])
                self.assertNotIn("running", self.rank_json(1))
                if SANITIZER:
                    continue  # there is no ttrace-check in that tree
                report = subprocess.run([BUILD / "tools" / "ttrace-check", self.trace],
                                        capture_output=True, text=True)
                self.assertIn("rank 0 ended in it, rank 1 never called it" if full else
                              "rank 0 called it, rank 1 never called it", report.stdout)

    def test_a_forked_child_records_nothing(self):
        self.capture([*CLIENT, "forked"], ranks=1)
        self.assertEqual([c.sequence for c in self.calls()], [0, 1])

    LOOKS_IT_UP = """
import ctypes
cuda = ctypes.CDLL(r"{fake}/libcudart.so.13")
nccl = ctypes.CDLL(r"{fake}/libnccl.so.2")
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
unique, comm, data = Id(), ctypes.c_void_p(), ctypes.c_void_p()
assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0) == 0
values = (ctypes.c_float * 3)(1, 2, 3)
cuda.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(12))
cuda.cudaMemcpy(data, values, ctypes.c_size_t(12), 1)
assert nccl.ncclAllReduce(data, data, ctypes.c_size_t(3), 7, 0, comm, None) == 0
assert cuda.cudaDeviceSynchronize() == 0
""".format(fake=FAKE)

    def test_a_program_that_looks_nccl_up(self):
        self.capture(["python3", "-c", self.LOOKS_IT_UP], ranks=1)
        self.assertEqual([(c.function, c.input, c.output) for c in self.calls()],
                         [("all_reduce", [1, 2, 3], [1, 2, 3])])

    def test_communication_of_kernels_is_noted(self):
        program = self.LOOKS_IT_UP + "assert nccl.ncclDevCommCreate(comm, None, None) == 5\n" * 2
        self.capture(["python3", "-c", program], ranks=1)
        self.assertEqual([event["where"] for event in self.rank_json()["events"]],
                         ["ncclDevCommCreate"])

    def test_iterations_of_torch_are_the_agents(self):
        # It trains nothing, so there is none.
        self.capture(["python3", "-c", "import torch" + self.LOOKS_IT_UP], ranks=1, code=2)
        self.assertEqual(list(self.trace.glob("rank*/it*.h5")), [])

    TRAINS = """
import torch, ttrace_agent
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def reduce(op):
    assert nccl.ncclAllReduce(data, data, ctypes.c_size_t(3), 7, op, comm, None) == 0
loss = model(torch.ones(1, 2)).sum()
reduce(0)
with ttrace_agent.paused():
    reduce(1)
    reduce(2)
reduce(3)
loss.backward()
optimizer.step()
"""

    def test_pauses_of_the_agent_are_pauses_here(self):
        program = "import torch\n" + self.LOOKS_IT_UP + self.TRAINS
        self.capture([sys.executable, "-c", program], ranks=1)
        # The first call of LOOKS_IT_UP came before the iteration.
        self.assertEqual([(c.reduction, c.sequence) for c in self.calls()],
                         [("sum", 1), ("min", 4)])

    def test_a_function_that_is_not_known_is_named(self):
        self.capture([*CLIENT, "every_collective"], ranks=1,
                     LD_LIBRARY_PATH=str(FAKE / "tomorrow"))
        events = self.rank_json()["events"]
        self.assertEqual([event["where"] for event in events], ["ncclAllReduceSparse"])
        self.assertIn("not recorded", events[0]["why"])

    def test_what_dlsym_means_depends_on_the_caller_as_before(self):
        env = self.environment(LD_PRELOAD=preload(str(RECORDER)))
        done = subprocess.run([HERE / "next_program"], env=env, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), ("2 1\n", 0))

    def test_without_a_capture_nothing_happens(self):
        env = self.environment(LD_PRELOAD=preload(str(RECORDER)), WORLD_SIZE="1")
        done = subprocess.run([*CLIENT, "every_collective"], env=env, capture_output=True,
                              text=True, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(os.listdir(self.folder), ["ids"])
        done = subprocess.run(["/bin/true"], env=env, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipIf(SANITIZER, "a sanitizer's runtime, too")
    def test_the_recorder_needs_libc_only(self):
        done = subprocess.run(["readelf", "-d", RECORDER], capture_output=True, text=True)
        needed = {line.split("[")[1].rstrip("]") for line in done.stdout.splitlines()
                  if "(NEEDED)" in line}
        self.assertLessEqual(needed, {"libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6"})


class Options(NcclTest):
    def capture_environment(self, *options, **settings):
        return subprocess.run(
            [BUILD / "tools" / "ttrace-capture", "-o", self.trace, "--print-env", *options],
            env=self.environment(**settings), capture_output=True, text=True)

    def test_what_is_preloaded(self):
        done = self.capture_environment("--comm", "hash")
        self.assertIn("export TTRACE_COMM='hash'\n", done.stdout)
        self.assertIn(f"export LD_PRELOAD='{preload(str(RECORDER))}'\n", done.stdout)
        self.assertNotIn("LD_PRELOAD", self.capture_environment("--overwrite").stdout)
        kept = self.capture_environment("--comm", "full", "--overwrite", LD_PRELOAD=preload("/mine.so"))
        self.assertIn(f"export LD_PRELOAD='{preload('/mine.so', str(RECORDER))}'\n", kept.stdout)

    def test_wrong_ones(self):
        for options, named in ((["--comm", "some"], "--comm"),
                               (["--comm", "full", "--events"], "--comm")):
            done = self.capture_environment(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(named, done.stderr)
        self.assertFalse(self.trace.exists())


@unittest.skipUnless(os.environ.get("NCCL_ROOT") and
                     pathlib.Path(os.environ["NCCL_ROOT"], "lib", "libnccl.so.2").exists(),
                     "no libnccl.so.2 beside the header")
class RealLibrary(NcclTest):
    """On a machine without a device it refuses to make a communicator, with and without us."""

    def test_it_answers_as_it_does_alone(self):
        settings = {"LD_LIBRARY_PATH": os.environ["NCCL_ROOT"] + "/lib", "WORLD_SIZE": "1"}
        alone = subprocess.run([*CLIENT, "smoke"], env=self.environment(**settings),
                               capture_output=True, text=True)
        settings.pop("WORLD_SIZE")
        # 2: nothing was captured, as there is no communicator.
        watched = self.capture([*CLIENT, "smoke"], ranks=1, code=2, **settings)
        self.assertEqual((alone.returncode, alone.stdout), (0, watched.stdout))
        # Every function that it exports is known; one-sided ones are noted when they are called.
        self.assertEqual(self.rank_json()["events"], [])


if __name__ == "__main__":
    unittest.main()
