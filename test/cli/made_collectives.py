# SPDX-License-Identifier: Apache-2.0
"""Made-up traces with collectives for tests of ttrace-check."""
from __future__ import annotations

from collections import defaultdict

import numpy as np

from made_checks import CheckTest, tensor


def bfloat16(values) -> np.ndarray:
    """Rounded to the nearest bfloat16, ties to even, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7fff + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


class Made:
    """What ranks record, in the order of the calls of this object."""

    def __init__(self, world: int, axes=None, groups=None):
        self.world, self.axes, self.groups = world, axes, groups
        self.guessed = False  # the axes
        self.parameters = lambda rank: []  # names
        self.records = defaultdict(list)  # by rank and iteration
        self.rows = defaultdict(list)
        self.sequences = defaultdict(int)
        self.calls = defaultdict(int)
        self.incomplete = set()
        self.more = {}  # further members of rank.json, by rank

    def record(self, rank: int, key: str, values, dtype: str = "float32", **more) -> int:
        iteration = int(key.split("/")[0][2:])
        records = self.records[rank, iteration]
        records.append(tensor(key, values, dtype, **more))
        return len(records) - 1

    def buffer(self, rank, where, side, values, dtype, kind):
        if values is None:
            return -1
        iteration, microbatch, module, function = where
        slot = f"{function}.{side}"
        number = self.calls[rank, where, side]
        self.calls[rank, where, side] += 1
        middle = f"mb{microbatch}/" if microbatch >= 0 else ""
        call = f"#{number}" if number else ""
        key = f"it{iteration}/{middle}comm/{module or '@root'}{call}/{slot}"
        return self.record(rank, key, values, dtype, kind=kind)

    def call(self, function: str, group: str, ranks, inputs, outputs, *, iteration: int = 0,
             microbatch: int = -1, module: str = "", dtype: str = "float32", kind: str = "full",
             lost=(), splits=None, **row):
        """`inputs`, `outputs`: one a member, None where there is none. `lost`: members whose call is
        not in the trace. `splits`: (input, output) texts, one a member."""
        for member, rank in enumerate(ranks):
            sequence = self.sequences[group, rank]
            self.sequences[group, rank] += 1
            if member in lost:
                continue
            where = (iteration, microbatch, module, function)
            position = len(self.records[rank, iteration])
            source = self.buffer(rank, where, "input", inputs[member], dtype, kind)
            result = self.buffer(rank, where, "output", outputs[member], dtype, kind)
            entry = {"function": function, "group": group, "sequence": sequence, "member": member,
                     "size": len(ranks), "module": module, "microbatch": microbatch,
                     "dtype": dtype, "input": source, "output": result, "position": position}
            if splits is not None:
                entry["input_splits"], entry["output_splits"] = splits[0][member], splits[1][member]
            entry.update(row)
            self.rows[rank, iteration].append(entry)

    def pair(self, group: str, size: int, sender, receiver, sent, got, **more):
        """`sender`, `receiver`: (member, rank)."""
        for function, (member, rank), peer, values in (("send", sender, receiver[0], sent),
                                                       ("recv", receiver, sender[0], got)):
            iteration = more.get("iteration", 0)
            where = (iteration, more.get("microbatch", -1), more.get("module", ""), function)
            sequence = self.sequences[group, rank]
            self.sequences[group, rank] += 1
            side = "input" if function == "send" else "output"
            if function in more.get("lost", ()):
                continue
            number = self.buffer(rank, where, side, values, "float32", "full")
            self.rows[rank, iteration].append({
                "function": function, "group": group, "sequence": sequence, "member": member,
                "size": size, "peer": peer, "module": where[2], "microbatch": where[1], side: number,
                "count": int(np.size(values))})

    def described(self, present=None) -> list:
        ranks = []
        for rank in range(self.world) if present is None else present:
            info = {"world_size": self.world, "modules": {}, "axes_guessed": self.guessed,
                    "parameters": {name: {"shape": [4, 8], "dtype": "float32"}
                                   for name in self.parameters(rank)}}
            if self.axes is not None:
                info["axes"] = self.axes(rank)
            if self.groups is not None:
                info["groups"] = self.groups(rank)
            info.update(self.more.get(rank, {}))
            iterations = sorted({i for r, i in [*self.records, *self.rows] if r == rank} or {0})
            ranks.append({"rank": rank, "rank_json": info, "segments": [
                {"iteration": i, "records": self.records[rank, i],
                 "collectives": self.rows[rank, i], "complete": (rank, i) not in self.incomplete}
                for i in iterations]})
        return ranks


class CollectiveTest(CheckTest):
    def run_check(self, made: Made, code: int, name: str, present=None) -> dict:
        self.written = getattr(self, "written", 0) + 1
        trace = self.write_ranks(f"{self.written}.trace", made.described(present))
        return self.check(trace, code, name)[name]

    def silent(self, made: Made, code: int, name: str, present=None) -> dict:
        result = self.run_check(made, code, name, present)
        self.assertEqual(result["violations"], [], result)
        return result
