# SPDX-License-Identifier: Apache-2.0
"""Sees every collective where all of them pass: kernels of ours for the operators of c10d.

ProcessGroup's methods call operators, whoever calls the methods: torch.distributed, DTensor and
functional collectives, compiled code, the reducer of DDP. BackendSelect is a dispatch key that
comes before the kernels of all devices and has none of its own here. A kernel of ours calls on with
the interpreter's lock released: backends destroy tensors, which takes that lock, while they hold
their own. It returns the very Work that the backend made. Programs wait with its methods, which are
observed, too.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Set

from .operators import OPERATORS, Operator


def install(torch: Any, observer: Any) -> Any:
    """Raises where this torch lacks something. What it returns has to be kept."""
    process_group = torch._C._distributed_c10d.ProcessGroup
    work = torch._C._distributed_c10d.Work
    on_host = {torch._C.DispatchKey.CPU, torch._C.DispatchKey.SparseCPU}
    library = torch.library.Library("c10d", "IMPL")
    for name, operator in OPERATORS.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            kernel = _collective(_Below(torch, packet.default), operator, observer, on_host,
                                 process_group.unbox, work.unbox)
            library.impl(name, kernel, "BackendSelect", with_keyset=True)
    waits = torch.library.Library("_c10d_functional", "IMPL")
    below = _Below(torch, torch.ops._c10d_functional.wait_tensor.default)
    waits.impl("wait_tensor", _wait_tensor(below, observer), "BackendSelect", with_keyset=True)
    watch_work(torch, observer)
    return library, waits


class _Below:
    """The kernels of an operator that come after ours."""

    def __init__(self, torch: Any, overload: Any):
        self._operator = overload
        self._after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._has = torch._C._dispatch_has_kernel_for_dispatch_key
        self._any = torch._C.DispatchKey.CompositeExplicitAutograd
        self._calls: Dict[Any, Callable[..., Any]] = {}

    def key(self, keys: Any) -> Any:
        return (keys & self._after).highestPriorityTypeId()

    def call(self, key: Any) -> Callable[..., Any]:
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._find(key)
        return found

    def _find(self, key: Any) -> Callable[..., Any]:
        for exact in (key, self._any):
            if self._has(self._operator.name(), exact.name):  # _op_dk looks no further
                return functools.partial(self._operator._op_dk, exact)
        keys = type(self._after)(key)
        return functools.partial(self._operator.redispatch, keys)  # which says what is missing


def _collective(below: _Below, operator: Operator, observer: Any, on_host: Set[Any],
                group_of: Any, work_of: Any) -> Callable[..., Any]:
    """Those of tensors on a device are for what sees the device's library."""
    at, flag, exchanges, several = operator

    def collective(keys: Any, *args: Any) -> Any:
        key = below.key(keys)
        call_on = below.call(key)
        if key not in on_host:
            return call_on(*args)
        asynchronous = None if flag < 0 else len(args) <= flag or args[flag]  # true by default
        call = observer.before(lambda member, size: exchanges(args, member, size),
                               1 if several < 0 else len(args[several]), asynchronous,
                               group_of(args[at]))
        if call is None:
            return call_on(*args)
        try:
            result = call_on(*args)
        except Exception:
            observer.raised(call)
            raise
        work = result[-1] if isinstance(result, tuple) else result
        observer.started(call, None if work is None else work_of(work))
        return result

    return collective


def _wait_tensor(below: _Below, observer: Any) -> Callable[..., Any]:
    def wait_tensor(keys: Any, tensor: Any) -> Any:
        result = below.call(below.key(keys))(tensor)
        observer.tensor_waited(tensor)
        return result

    return wait_tensor


def watch_work(torch: Any, observer: Any) -> None:
    """Names and first arguments as they are: C++ asks whether a subclass overrides a method, and
    knows by them that it is called from the override itself."""
    kind = torch._C._distributed_c10d.Work
    original_wait, original_completed = kind.wait, kind.is_completed
    original_future = kind.get_future

    @functools.wraps(original_wait)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = observer.of_work(self)
        if call is None:
            return original_wait(self, *args, **kwargs)
        try:
            result = original_wait(self, *args, **kwargs)
        except Exception:
            if original_completed(self):  # else it was not waited for any longer
                observer.raised(call)
            raise
        observer.waited(call)
        return result

    @functools.wraps(original_completed)
    def is_completed(self: Any) -> bool:
        result = original_completed(self)
        call = observer.of_work(self) if result else None
        if call is not None:
            observer.seen_completed(call)
        return result

    @functools.wraps(original_future)
    def get_future(self: Any) -> Any:
        future = original_future(self)
        call = observer.of_work(self)
        if call is not None:
            observer.future_taken(call, future)
        return future

    kind.wait, kind.is_completed, kind.get_future = wait, is_completed, get_future


def watch_future(torch: Any, settled: Callable[[Any], None]) -> None:
    """Calls settled(future) before a program that has waited for a future goes on."""
    original_wait = torch._C.Future.wait

    @functools.wraps(original_wait)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original_wait(self, *args, **kwargs)
        finally:
            settled(self)

    torch._C.Future.wait = wait
