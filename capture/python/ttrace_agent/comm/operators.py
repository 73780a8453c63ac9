# SPDX-License-Identifier: Apache-2.0
"""What the operators of torch's namespace c10d do, of which each collective is one.

An operator's arguments become exchanges, one for each row of /collectives. Roots and peers are
members' numbers here already.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Sequence


class Exchange(NamedTuple):
    function: str
    inputs: Sequence[Any]  # tensors; [] where this member's do not count
    outputs: Sequence[Any]
    count: int
    reduction: str = ""
    peer: int = -1
    input_splits: str = ""
    output_splits: str = ""


# By the number of torch's enum RedOpType.
_REDUCTIONS = ("sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum")


class Operator(NamedTuple):
    group: int  # which argument is the process group
    asynchronous: int  # and which says so, -1: none
    exchanges: Callable[[Sequence[Any], int, int], List[Exchange]]  # (arguments, member, size)
    several: int = -1  # which argument lists one thing for each exchange; -1: there is one


def reduction(op: Any) -> str:
    """Of a boxed ReduceOp."""
    kind = int(op.op())
    return _REDUCTIONS[kind] if kind < len(_REDUCTIONS) else str(kind)


def reduction_name(op: Any) -> str:
    """Of one that is not, which says what it is by comparing equal; "sum" is every default."""
    kinds = getattr(getattr(type(op), "RedOpType", type(op)), "__members__", {})
    for kind in kinds.values():
        if op == kind and int(kind) < len(_REDUCTIONS):
            return _REDUCTIONS[int(kind)]
    return _REDUCTIONS[0]


def total(tensors: Sequence[Any]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def splits_text(counts: Sequence[int]) -> str:
    """ "" where all are equal."""
    return "" if len(set(counts)) <= 1 else ",".join(map(str, counts))


def _sizes(tensors: Sequence[Any]) -> str:
    return splits_text([tensor.numel() for tensor in tensors])


def _rows(splits: Sequence[int], tensor: Any) -> str:
    """Splits of the first dimension as numbers of elements."""
    width = math.prod(tensor.shape[1:])
    return splits_text([rows * width for rows in splits])


def all_reduce(tensor: Any, op: str) -> Exchange:
    return Exchange("all_reduce", [tensor], [tensor], tensor.numel(), op)


def broadcast(tensor: Any, root: int, member: int) -> Exchange:
    sent = [tensor] if member == root else []
    return Exchange("broadcast", sent, [tensor], tensor.numel(), peer=root)


def reduce(tensor: Any, op: str, root: int, member: int) -> Exchange:
    got = [tensor] if member == root else []
    return Exchange("reduce", [tensor], got, tensor.numel(), op, root)


def all_gather(outputs: Sequence[Any], sent: Any) -> Exchange:
    return Exchange("all_gather", [sent], outputs, sent.numel(), output_splits=_sizes(outputs))


def reduce_scatter(output: Any, inputs: Sequence[Any], op: str) -> Exchange:
    return Exchange("reduce_scatter", inputs, [output], output.numel(), op,
                    input_splits=_sizes(inputs))


def gather(outputs: Sequence[Any], sent: Any, root: int, member: int) -> Exchange:
    got = outputs if member == root else []
    return Exchange("gather", [sent], got, sent.numel(), peer=root, output_splits=_sizes(got))


def scatter(output: Any, inputs: Sequence[Any], root: int, member: int) -> Exchange:
    sent = inputs if member == root else []
    return Exchange("scatter", sent, [output], output.numel(), peer=root,
                    input_splits=_sizes(sent))


def all_to_all(outputs: Sequence[Any], inputs: Sequence[Any], size: int, sent: str = "",
               got: str = "") -> Exchange:
    """The splits are those of single tensors; lists have their own."""
    sent, got = sent or _sizes(inputs), got or _sizes(outputs)
    uneven = bool(sent or got)
    return Exchange("all_to_all", inputs, outputs, 0 if uneven else total(inputs) // max(size, 1),
                    input_splits=sent, output_splits=got)


def all_to_all_single(output: Any, sent: Any, output_splits: Sequence[int],
                      input_splits: Sequence[int], size: int) -> Exchange:
    return all_to_all([output], [sent], size, _rows(input_splits, sent),
                      _rows(output_splits, output))


def send(tensor: Any, peer: int) -> Exchange:
    return Exchange("send", [tensor], [], tensor.numel(), peer=peer)


def receive(tensor: Any, peer: int) -> Exchange:
    return Exchange("recv", [], [tensor], tensor.numel(), peer=peer)


def all_gather_coalesced(a: Sequence[Any], member: int, size: int) -> List[Exchange]:
    return [all_gather([outputs[i] for outputs in a[0]], sent) for i, sent in enumerate(a[1])]


OPERATORS: Dict[str, Operator] = {
    "allreduce_": Operator(1, 4, lambda a, m, n: [all_reduce(t, reduction(a[2])) for t in a[0]]),
    "allreduce_coalesced_": Operator(
        1, 3, lambda a, m, n: [all_reduce(t, reduction(a[2])) for t in a[0]], 0),
    "broadcast_": Operator(1, 4, lambda a, m, n: [broadcast(t, a[2], m) for t in a[0]]),
    "reduce_": Operator(1, 5, lambda a, m, n: [reduce(t, reduction(a[2]), a[3], m) for t in a[0]]),
    "allgather_": Operator(
        2, 3, lambda a, m, n: [all_gather(got, sent) for got, sent in zip(a[0], a[1])]),
    "allgather_coalesced_": Operator(2, 3, all_gather_coalesced, 1),
    "_allgather_base_": Operator(2, 3, lambda a, m, n: [all_gather([a[0]], a[1])]),
    "allgather_into_tensor_coalesced_": Operator(
        2, 3, lambda a, m, n: [all_gather([got], sent) for got, sent in zip(a[0], a[1])], 0),
    "reduce_scatter_": Operator(2, 4, lambda a, m, n: [
        reduce_scatter(got, sent, reduction(a[3])) for got, sent in zip(a[0], a[1])]),
    "_reduce_scatter_base_": Operator(
        2, 4, lambda a, m, n: [reduce_scatter(a[0], [a[1]], reduction(a[3]))]),
    "reduce_scatter_tensor_coalesced_": Operator(2, 4, lambda a, m, n: [
        reduce_scatter(got, [sent], reduction(a[3])) for got, sent in zip(a[0], a[1])], 0),
    "gather_": Operator(2, 4, lambda a, m, n: [
        gather(a[0][i] if a[0] else [], sent, a[3], m) for i, sent in enumerate(a[1])]),
    "scatter_": Operator(2, 4, lambda a, m, n: [
        scatter(got, a[1][i] if a[1] else [], a[3], m) for i, got in enumerate(a[0])]),
    "alltoall_": Operator(2, 3, lambda a, m, n: [all_to_all(a[0], a[1], n)]),
    "alltoall_base_": Operator(
        2, 5, lambda a, m, n: [all_to_all_single(a[0], a[1], a[3], a[4], n)]),
    "send": Operator(1, -1, lambda a, m, n: [send(t, a[2]) for t in a[0]]),
    "recv_": Operator(1, -1, lambda a, m, n: [receive(t, a[2]) for t in a[0]]),
    "recv_any_source_": Operator(1, -1, lambda a, m, n: [receive(t, -1) for t in a[0]]),
    "barrier": Operator(1, 3, lambda a, m, n: [Exchange("barrier", [], [], 0)]),
    "monitored_barrier_": Operator(1, -1, lambda a, m, n: [Exchange("barrier", [], [], 0)]),
}
