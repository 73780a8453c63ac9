# SPDX-License-Identifier: Apache-2.0
"""samples/nccl on four processes: the same as one process whose communicators have one member; what
NCCL was called for is recorded with its module, and every call conserves what it was given.

NCCL and the CUDA runtime are the tests' own, and their streams do nothing before somebody waits.
"""
import json
import os
import unittest

import h5py
import numpy

from runs import BUILD, FAKE_CUDA, TOOLS, Runs, run, training_lines

TRAINER = BUILD / "samples/nccl/trainer"
WITHOUT_NCCL = BUILD / "samples/cpp/trainer"
LAYERS, SAMPLES = 4, 4
LAYOUTS = [{"tp": 2, "pp": 2}, {"tp": 2, "dp": 2}, {"pp": 2, "dp": 2}, {"dp": 4},
           {"pp": 2, "dp": 2, "zero": 1}]


def words(layout):
    return [word for name, size in layout.items() for word in (f"--{name}", str(size))]


def place(rank, layout):
    """(stage, place in dp, place in tp): tp is innermost."""
    tp, dp = layout.get("tp", 1), layout.get("dp", 1)
    return rank // (tp * dp), rank // tp % dp, rank % tp


def expected_calls(stage, layout):
    """{function: calls} of a rank of that stage in an iteration, as samples/cpp/layers.hpp says."""
    stages = layout.get("pp", 1)
    first, last = stage == 0, stage == stages - 1
    turns, blocks = SAMPLES // layout.get("dp", 1), LAYERS // stages
    parameters = 6 * blocks + 1 * first + 3 * last
    sharded = parameters if layout.get("zero") else 0
    return {
        # Forward: fc1 of each block, output, the loss. Backward: fc2 of each block, the embedding.
        "all_gather": turns * (2 * blocks + 2 * last + first) + sharded,
        # Forward: the embedding, fc2 of each block. Backward: fc1 of each block, output.
        "reduce_scatter": turns * (2 * blocks + first + last) + sharded,
        # Both norm gradients and fc2's bias of each block over tp, all over dp, loss and norm.
        "all_reduce": 3 * blocks + 2 * last + (parameters - sharded) + 1,
        "send": turns * ((not first) + (not last)),
        "recv": turns * ((not first) + (not last)),
    }


class Recorded:
    """What one rank has recorded of its collectives in iteration 0."""

    def __init__(self, trace, rank):
        path = trace / f"rank{rank:05d}/it000000.h5"
        with h5py.File(path) as segment:
            names = [name.decode() for name in segment["names"][()]]
            self.index = segment["index"][()]
            rows = segment["collectives"][()]
        bytes_of_file = path.read_bytes()

        def text(number):
            return names[number] if number >= 0 else ""

        def data(number):
            row = self.index[number]
            return numpy.frombuffer(bytes_of_file, "<f4", int(row["bytes"]) // 4,
                                    int(row["offset"]))

        self.calls = [{"rank": rank, "function": text(row["function"]), "group": text(row["group"]),
                       "module": text(row["module"]), "reduction": text(row["reduction"]),
                       "sequence": int(row["sequence"]), "member": int(row["member"]),
                       "size": int(row["size"]), "peer": int(row["peer"]),
                       "microbatch": int(row["microbatch"]), "count": int(row["count"]),
                       "input": data(row["input"]) if row["input"] >= 0 else None,
                       "output": data(row["output"]) if row["output"] >= 0 else None}
                      for row in rows]


def joined(ranks):
    """{(group, sequence): its calls by member}, sends and receives apart."""
    calls = {}
    for rank in ranks:
        for call in rank.calls:
            if call["function"] not in ("send", "recv"):
                calls.setdefault((call["group"], call["sequence"]), []).append(call)
    for members in calls.values():
        members.sort(key=lambda call: call["member"])
    return list(calls.values())


def sum_of(inputs):
    """In the order of the members, which is that of the tests' NCCL, and rounded after each."""
    total = inputs[0].copy()
    for other in inputs[1:]:
        total += other
    return total


def wanted_outputs(members):
    inputs = [call["input"] for call in members]
    size = len(members)
    return {"all_gather": lambda: [numpy.concatenate(inputs)] * size,
            "all_reduce": lambda: [sum_of(inputs)] * size,
            "reduce_scatter": lambda: numpy.split(sum_of(inputs), size)}[members[0]["function"]]()


class NcclHealthy(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.capture("reference", [TRAINER, "--iters", "1"], ["--comm", "full"])

    def trace(self, layout):
        name = " ".join(words(layout))
        if not (self.traces / name).exists():
            self.capture(name, [TRAINER, "--iters", "1", *words(layout)], ["--comm", "full"])
        return name

    def recorded(self, layout):
        return [Recorded(self.traces / self.trace(layout), rank) for rank in range(4)]

    def test_layouts_are_the_same_as_one_process(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                self.check_same(self.diff("reference", self.trace(layout), expected=0))

    def test_what_is_merged_is_the_same_too(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                merged = f"{self.trace(layout)} merged"
                run([TOOLS / "ttrace-merge", "-q", self.traces / self.trace(layout), "--like",
                     self.traces / "reference", "-o", self.traces / merged])
                self.check_same(self.diff("reference", merged, expected=0))

    def test_no_bit_changes_and_shared_memory_computes_the_same_ones(self):
        for layout in ({}, *LAYOUTS):
            with self.subTest(layout):
                command = ["--iters", "2", *words(layout)]
                plain = training_lines(run([TRAINER, *command]).stdout)
                traced = training_lines(self.capture("bits", [TRAINER, *command],
                                                     ["--overwrite", "--iterations", "0-1",
                                                      "--comm", "full"]))
                self.assertEqual(len(plain), 2)
                self.assertEqual(plain, traced)
                self.assertEqual(plain, training_lines(run([WITHOUT_NCCL, *command]).stdout))

    def test_each_call_is_recorded_with_its_module(self):
        for layout in LAYOUTS:
            for rank, recorded in enumerate(self.recorded(layout)):
                with self.subTest(layout, rank=rank):
                    made = {}
                    for call in recorded.calls:
                        made[call["function"]] = made.get(call["function"], 0) + 1
                    stage = place(rank, layout)[0]
                    wanted = expected_calls(stage, layout)
                    self.assertEqual(made, {name: n for name, n in wanted.items() if n > 0})
                    stages = layout.get("pp", 1)
                    blocks = range(stage * LAYERS // stages, (stage + 1) * LAYERS // stages)
                    self.assertLessEqual({f"layers.{layer}.{name}" for layer in blocks
                                          for name in ("fc1", "fc2")},
                                         {call["module"] for call in recorded.calls
                                          if call["function"] == "reduce_scatter"})

    def test_stages_send_what_the_others_receive(self):
        for layout in LAYOUTS[:1] + LAYOUTS[2:3]:
            with self.subTest(layout):
                ends = {"send": {}, "recv": {}}
                for recorded in self.recorded(layout):
                    for call in recorded.calls:
                        if call["function"] in ends:
                            forward = (call["member"] == 0) == (call["function"] == "send")
                            key = (call["group"], forward, call["microbatch"])
                            self.assertNotIn(key, ends[call["function"]])
                            self.assertEqual(call["module"],
                                             "layers.1" if call["member"] == 0 else "layers.2")
                            self.assertEqual(call["peer"], 1 - call["member"])
                            ends[call["function"]][key] = call
                # Two pairs of ranks, activations and gradients of each of their micro-batches.
                self.assertEqual(len(ends["send"]), 2 * 2 * SAMPLES // layout.get("dp", 1))
                self.assertEqual(set(ends["send"]), set(ends["recv"]))
                for key, sent in ends["send"].items():
                    numpy.testing.assert_array_equal(sent["input"], ends["recv"][key]["output"])

    def test_every_call_conserves_what_it_was_given(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                sizes = set()
                for members in joined(self.recorded(layout)):
                    self.assertEqual([call["member"] for call in members],
                                     list(range(members[0]["size"])))
                    self.assertEqual(len({(call["function"], call["module"], call["count"],
                                           call["reduction"]) for call in members}), 1)
                    sizes.add(len(members))
                    for call, wanted in zip(members, wanted_outputs(members)):
                        numpy.testing.assert_array_equal(call["output"], wanted,
                                                         f"{call['function']} {call['module']}")
                self.assertIn(max(layout.get("tp", 1), layout.get("dp", 1)), sizes)

    def test_nothing_is_wrong_without_a_reference(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                done = run([TOOLS / "ttrace-check", self.traces / self.trace(layout), "--json", "-"])
                checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
                for name in ("order", "groups", "conserve", "twice", "parts"):
                    self.assertEqual(checks[name]["verdict"], "passed", checks[name])

    def test_ranks_tell_their_axes_and_groups(self):
        for rank in range(4):
            told = json.loads((self.traces / self.trace(LAYOUTS[0]) /
                               f"rank{rank:05d}/rank.json").read_text())
            stage, _, member = place(rank, LAYOUTS[0])
            self.assertEqual(told["axes"], [{"name": "pp", "size": 2, "coord": stage},
                                            {"name": "dp", "size": 1, "coord": 0},
                                            {"name": "tp", "size": 2, "coord": member}])
            self.assertEqual(told["groups"], {"pp": [member, 2 + member], "dp": [rank],
                                              "tp": [2 * stage, 2 * stage + 1]})
            self.assertFalse(told["degraded"])


if __name__ == "__main__":
    os.environ.update(FAKE_CUDA)
    unittest.main()
