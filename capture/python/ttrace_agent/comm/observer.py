# SPDX-License-Identifier: Apache-2.0
"""What is done when a collective is seen: it is counted, and while recording it becomes a row.

Nothing here waits, communicates, or changes what the program is given.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from .. import abi
from . import intercept
from .buffers import Buffers
from .groups import Group, Groups
from .operators import Exchange
from .rows import Call, Row, Rows
from .scopes import Scopes

_OBJECTS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
            "send_object_list", "recv_object_list")
_CALLERS = 7  # frames between a collective and the function of torch.distributed that means it
_PATIENCE_SECONDS = 10  # for a callback that is certain to run


class Observer:
    def __init__(self, agent: Any, torch: Any, wanted: int):
        self._agent = agent
        self._torch = torch
        kind = {abi.HASHES: "hash", abi.BUFFERS: "full"}.get(wanted, "")
        self._has_buffers = bool(kind)
        self._rows = Rows(agent, torch, Buffers(agent, kind))
        self._groups = Groups(torch, agent.library)
        self.scopes = Scopes(torch, agent.library, agent.hooks.stack)
        self._graph_task = torch._C._current_graph_task_id
        self._queue = torch.autograd.Variable._execution_engine.queue_callback
        self._task = -1
        self._futures: Dict[int, Tuple[Any, Call]] = {}
        self._watches_futures = False
        distributed = torch.distributed.distributed_c10d
        self._objects = _codes(distributed, _OBJECTS)
        self._together = _codes(distributed, ("batch_isend_irecv",))
        self._blocking = _codes(distributed, ("send", "recv"))
        self.of_work = self._rows.of_work
        self.kept: Any = None  # what the interception would lose otherwise

    # ---- iterations ----

    def begin_iteration(self) -> None:
        self._futures.clear()
        self._rows.begin_iteration()
        self.scopes.begin_iteration()

    def end_iteration(self) -> None:
        self._rows.end_iteration()

    # ---- a collective ----

    def before(self, exchanges: Callable[[int, int], List[Exchange]], count: int,
               asynchronous: Optional[bool], process_group: Any) -> Optional[Call]:
        """None when there is nothing to say later. `exchanges`: of (member, size), `count` many."""
        try:
            group = self._groups.find(process_group)
            sequences = [group.next_call() for _ in range(count)]
            if not self._agent.steps.recording or self._agent.paused:
                return None
            return self._before(exchanges(group.member, group.size), asynchronous, group, sequences)
        except Exception as error:
            self._agent.failed("collective", error)
            return None

    def _before(self, found: List[Exchange], asynchronous: Optional[bool], group: Group,
                sequences: List[int]) -> Call:
        self._rows.sweep_sometimes()
        self._groups.tell(group)
        callers = _callers()
        flags = self._flags(asynchronous, len(found) > 1, callers)
        call = Call([Row(exchange, group, sequence, flags | _in_place(exchange))
                     for exchange, sequence in zip(found, sequences)])
        self._touch(call)
        if callers & self._objects or not self._has_buffers:
            call.drop_buffers()
        module, microbatch = self.scopes.current()
        self._rows.add(call, module, microbatch)
        self._watch_backward()
        return call

    def _flags(self, asynchronous: Optional[bool], together: bool, callers: Set[Any]) -> int:
        if asynchronous is None:
            asynchronous = not callers & self._blocking
        flags = abi.ASYNCHRONOUS if asynchronous else 0
        if together or callers & self._together:
            flags |= abi.IN_GROUP
        return flags

    def _touch(self, call: Call) -> None:
        for row in call.rows:
            for tensor in row.exchange.outputs:
                if not tensor.is_sparse:
                    self._agent.touched(tensor)

    def started(self, call: Call, work: Any) -> None:
        self._agent.guarded("collective", self._rows.started, call, work)

    def raised(self, call: Call) -> None:
        self._agent.guarded("collective", self._rows.failed, call)

    # ---- its end ----

    def waited(self, call: Call) -> None:
        self._agent.guarded("collective", self._waited, call)

    def _waited(self, call: Call) -> None:
        self._touch(call)  # by now it is written, whatever was recorded of it meanwhile
        self._rows.done(call)
        self._rows.sweep()

    def seen_completed(self, call: Call) -> None:
        self._agent.guarded("collective", self._seen_completed, call)

    def _seen_completed(self, call: Call) -> None:
        self._touch(call)
        self._rows.finish_completed(call)

    def tensor_waited(self, tensor: Any) -> None:
        """By a functional collective, whose Work Python never sees."""
        if self._agent.steps.recording:
            self._agent.guarded("collective", self._tensor_waited, tensor)

    def _tensor_waited(self, tensor: Any) -> None:
        call = self._rows.of_output(tensor)
        if call is not None:
            self._waited(call)

    def future_taken(self, call: Call, future: Any) -> None:
        """Whoever waits for a future of the collective goes on after it was recorded."""
        self._agent.guarded("collective", self._future_taken, call, future)

    def _future_taken(self, call: Call, future: Any) -> None:
        if not self._watches_futures:
            self._watches_futures = True
            intercept.watch_future(self._torch, self._future_waited)
        if call.finished is not None:
            return
        call.finished = threading.Event()
        self._futures[id(future)] = (future, call)
        future.add_done_callback(lambda done: self._future_done(call, done))

    def _future_done(self, call: Call, future: Any) -> None:
        """In the thread of the backend, before the Work lets anybody go."""
        try:
            future.value()
            self.waited(call)
        except Exception:
            self.raised(call)
        finally:
            call.finished.set()

    def _future_waited(self, future: Any) -> None:
        known = self._futures.pop(id(future), None)
        if known is not None and known[1].finished is not None:
            known[1].finished.wait(_PATIENCE_SECONDS)

    # ---- modules, and the backward pass ----

    def around(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """`hook`, which changes the stack of calls. What came out before it is still as it was:
        DDP has waited for its buffers, and the module is about to change them."""
        def hooked(*args: Any) -> Any:
            try:
                return hook(*args)
            finally:
                self._rows.sweep()
                self.scopes.update()

        return hooked

    def gradient_arrived(self, module: str, microbatch: int) -> None:
        self._watch_backward()
        self.scopes.gradient_arrived(module, microbatch)

    def _watch_backward(self) -> None:
        """What waits below Python, in the backward pass, has waited when that is over."""
        task = self._graph_task()
        if task not in (-1, self._task):
            self._task = task
            self._queue(lambda: self._agent.guarded("backward", self._backward_over, True))

    def _backward_over(self, again: bool) -> None:
        self.scopes.backward_over()
        if self._rows.sweep() and again:  # the reducer's own callback may be behind this one
            self._queue(lambda: self._agent.guarded("backward", self._backward_over, False))


def _codes(module: Any, names: Sequence[str]) -> Set[Any]:
    found: List[Any] = [getattr(module, name, None) for name in names]
    return {inspect.unwrap(function).__code__ for function in found if function is not None}


def _callers() -> Set[Any]:
    frame = sys._getframe(4)  # past what is ours
    codes = set()
    for _ in range(_CALLERS):
        if frame is None:
            break
        codes.add(frame.f_code)
        frame = frame.f_back
    return codes


def _in_place(exchange: Exchange) -> int:
    for sent in exchange.inputs:
        for got in exchange.outputs:
            if sent is got or (_address(sent) < _end(got) and _address(got) < _end(sent)):
                return abi.IN_PLACE
    return 0


def _address(tensor: Any) -> int:
    return 0 if tensor.is_sparse else tensor.data_ptr()


def _end(tensor: Any) -> int:
    return 0 if tensor.is_sparse else tensor.data_ptr() + tensor.nbytes
