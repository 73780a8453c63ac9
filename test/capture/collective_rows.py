# SPDX-License-Identifier: Apache-2.0
"""Rows of /collectives as h5py reads them, and what NumPy says about what came out of each."""
import collections
import types

import h5py
import numpy

IN_PLACE, ASYNCHRONOUS, IN_GROUP, FAILED, BEGUN = 1, 2, 4, 8, 16
TEXTS = ("group", "function", "reduction", "module", "input_splits", "output_splits")
REDUCTIONS = {"sum": numpy.add, "avg": numpy.add, "max": numpy.maximum, "min": numpy.minimum}


def collectives(trace, iteration, rank):
    """Of a segment; `input` and `output` are arrays, None where nothing was recorded."""
    segment = trace.segment(iteration, rank)
    with h5py.File(segment.path) as file:
        if "collectives" not in file:
            return []
        names = [text.decode() for text in file["names"][()]]
        table = file["collectives"][()]
    rows = []
    for row in table:
        found = types.SimpleNamespace(rank=rank, **{
            name: row[name].item() for name in table.dtype.names})
        for name in TEXTS:
            number = getattr(found, name)
            setattr(found, name, names[number] if number >= 0 else "")
        found.records = [segment.rows[number] if number >= 0 else None
                         for number in (found.input, found.output)]
        found.input, found.output = (None if record is None else record.value().numpy()
                                     for record in found.records)
        rows.append(found)
    return rows


def calls(trace, iteration, ranks):
    """(group, n-th call) -> the rows of its members, by member; without sends and receives."""
    found = collections.defaultdict(dict)
    for rank in range(ranks):
        numbers = collections.Counter()
        for row in collectives(trace, iteration, rank):
            if row.function not in ("send", "recv"):
                found[row.group, numbers[row.group]][row.member] = row
                numbers[row.group] += 1
    return found


def split(row, values, text):
    """What belongs to each member."""
    counts = [int(count) for count in text.split(",")] if text else [values.size // row.size] * (
        row.size)
    return numpy.split(values.reshape(-1), numpy.cumsum(counts)[:-1])


def outcome(members, number):
    """What NumPy has for the output of the member `number`, from the inputs of all; None: none."""
    row = members[number]
    inputs = {member: other.input for member, other in members.items()}
    if row.function in ("broadcast",):
        return inputs[row.peer]
    if row.function in ("all_reduce", "reduce", "reduce_scatter"):
        if row.function == "reduce" and number != row.peer:
            return None
        total = inputs[0]
        for member in range(1, row.size):
            total = REDUCTIONS[row.reduction](total, inputs[member])
        if row.reduction == "avg":
            total = total / row.size
        return split(row, total, "")[number] if row.function == "reduce_scatter" else total
    if row.function in ("all_gather", "gather"):
        if row.function == "gather" and number != row.peer:
            return None
        return numpy.concatenate([inputs[member].reshape(-1) for member in range(row.size)])
    if row.function == "scatter":
        return split(members[row.peer], inputs[row.peer], members[row.peer].input_splits)[number]
    if row.function == "all_to_all":
        return numpy.concatenate([split(members[member], inputs[member],
                                        members[member].input_splits)[number]
                                  for member in range(row.size)])
    return None
