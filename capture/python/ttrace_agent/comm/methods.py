# SPDX-License-Identifier: Apache-2.0
"""For a torch where intercept.py finds no place: the methods of ProcessGroup that Python calls.

What C++ does by itself is not seen: functional collectives, DTensor, the reducer of DDP.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Dict, List, Sequence

from . import intercept, operators
from .operators import Exchange

# (arguments, options, member, size) of a method; the options are its last argument, if any.
Describe = Callable[[Sequence[Any], Any, int, int], List[Exchange]]


def _op(options: Any) -> str:
    """Of a method's options, or of a ReduceOp in their place."""
    return operators.reduction_name(getattr(options, "reduceOp", options))


def _many(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


METHODS: Dict[str, Describe] = {
    "allreduce": lambda a, o, m, n: [operators.all_reduce(t, _op(o)) for t in _many(a[0])],
    "broadcast": lambda a, o, m, n: [operators.broadcast(t, o.rootRank, m) for t in _many(a[0])],
    "reduce": lambda a, o, m, n: [
        operators.reduce(t, _op(o), o.rootRank, m) for t in _many(a[0])],
    "allgather": lambda a, o, m, n: [
        operators.all_gather(got, sent) for got, sent in zip(a[0], a[1])],
    "_allgather_base": lambda a, o, m, n: [operators.all_gather([a[0]], a[1])],
    "allgather_into_tensor_coalesced": lambda a, o, m, n: [
        operators.all_gather([got], sent) for got, sent in zip(a[0], a[1])],
    "allgather_coalesced": lambda a, o, m, n: operators.all_gather_coalesced(a, m, n),
    "reduce_scatter": lambda a, o, m, n: [
        operators.reduce_scatter(got, sent, _op(o)) for got, sent in zip(a[0], a[1])],
    "_reduce_scatter_base": lambda a, o, m, n: [
        operators.reduce_scatter(a[0], [a[1]], _op(o))],
    "reduce_scatter_tensor_coalesced": lambda a, o, m, n: [
        operators.reduce_scatter(got, [sent], _op(o)) for got, sent in zip(a[0], a[1])],
    "gather": lambda a, o, m, n: [
        operators.gather(a[0][i] if a[0] else [], sent, o.rootRank, m)
        for i, sent in enumerate(a[1])],
    "scatter": lambda a, o, m, n: [
        operators.scatter(got, a[1][i] if a[1] else [], o.rootRank, m)
        for i, got in enumerate(a[0])],
    "alltoall": lambda a, o, m, n: [operators.all_to_all(a[0], a[1], n)],
    "alltoall_base": lambda a, o, m, n: [
        operators.all_to_all_single(a[0], a[1], a[2], a[3], n)],
    "send": lambda a, o, m, n: [operators.send(t, a[1]) for t in a[0]],
    "recv": lambda a, o, m, n: [operators.receive(t, a[1]) for t in a[0]],
    "recv_anysource": lambda a, o, m, n: [operators.receive(t, -1) for t in a[0]],
    "barrier": lambda a, o, m, n: [Exchange("barrier", [], [], 0)],
}

# Which argument lists one thing for each exchange; of the others there is one.
_SEVERAL = {"allreduce_coalesced": 0, "allgather_coalesced": 1,
            "allgather_into_tensor_coalesced": 0, "reduce_scatter_tensor_coalesced": 0,
            "all_gather_single_coalesced": 0, "reduce_scatter_single_coalesced": 0}

# Names of the same by other versions.
METHODS.update({
    "allreduce_coalesced": METHODS["allreduce"],
    "all_gather_single": METHODS["_allgather_base"],
    "reduce_scatter_single": METHODS["_reduce_scatter_base"],
    "all_to_all_single": METHODS["alltoall_base"],
    "all_gather_single_coalesced": METHODS["allgather_into_tensor_coalesced"],
    "reduce_scatter_single_coalesced": METHODS["reduce_scatter_tensor_coalesced"],
})


def install(torch: Any, observer: Any) -> None:
    kind = torch._C._distributed_c10d.ProcessGroup
    for name, describe in METHODS.items():
        original = getattr(kind, name, None)
        if original is not None:
            setattr(kind, name, _observed(name, original, describe, observer))
    intercept.watch_work(torch, observer)


def _observed(name: str, original: Any, describe: Describe, observer: Any) -> Any:
    several = _SEVERAL.get(name)
    pairs = name in ("send", "recv", "recv_anysource")

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        options = args[-1] if args else None
        asynchronous = None if pairs else bool(getattr(options, "asyncOp", True))
        call = observer.before(lambda member, size: describe(args, options, member, size),
                               len(args[several]) if several is not None else 1, asynchronous, self)
        if call is None:
            return original(self, *args, **kwargs)
        try:
            work = original(self, *args, **kwargs)
        except Exception:
            observer.raised(call)
            raise
        observer.started(call, work)
        return work

    # C++ asks a subclass of Python's for a method of this name, and knows by the name of the
    # function and its first argument that it is called from there.
    return types.FunctionType(method.__code__.replace(co_name=name), method.__globals__, name, None,
                              method.__closure__)
