# SPDX-License-Identifier: Apache-2.0
"""Rows of /collectives, each told twice.

Before the call, so that a run which hangs or dies in it says so; and again once what came out is
known: when the program has waited for it, or when it is seen that the collective is done and the
program holds nothing any more that it could wait with (the reducer of DDP waits where Python does
not see it). Never earlier, and nothing here waits itself.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Dict, List, Optional, Tuple

from .. import abi
from ..names import ROOT
from .buffers import Buffers
from .groups import Group
from .operators import Exchange

class Row:
    def __init__(self, exchange: Exchange, group: Group, sequence: int, flags: int):
        self.exchange = exchange
        tensors = [*exchange.inputs[:1], *exchange.outputs[:1]]
        self.dtype = tensors[0].dtype if tensors else None
        self.group = group
        self.sequence = sequence
        self.flags = flags
        self.module, self.microbatch, self.call = "", -1, 0
        self.position = self.input = self.output = -1


class Call:
    """One call of an operator: one row, or several that were issued together."""

    __slots__ = ("rows", "work", "done", "finished", "written")

    def __init__(self, rows: List[Row]):
        self.rows = rows
        self.written = {tensor.data_ptr() for row in rows for tensor in row.exchange.outputs
                        if not tensor.is_sparse}
        self.work: Any = None
        self.done = False
        self.finished: Optional[threading.Event] = None  # by a callback of its future

    def drop_buffers(self) -> None:
        """Rows alone."""
        for row in self.rows:
            row.exchange = row.exchange._replace(inputs=[], outputs=[])


def _references(call: Call) -> int:
    return sys.getrefcount(call.work)


def _own_references() -> int:
    """What that is when nobody but the Call holds the work."""
    call = Call([])
    call.work = object()
    return _references(call)


class Rows:
    def __init__(self, agent: Any, torch: Any, buffers: Buffers):
        self._agent = agent
        self._buffers = buffers
        work = torch._C._distributed_c10d.Work
        # Before they are observed.
        self._is_completed, self._wait, self._future = work.is_completed, work.wait, work.get_future
        self._own = _own_references()
        self._lock = threading.RLock()
        self._open: Dict[int, Call] = {}  # those that have begun
        self._by_work: Dict[int, Call] = {}
        self._unswept = 0  # calls since the latest sweep
        self._numbers: Dict[Tuple[str, str, int], int] = {}

    def begin_iteration(self) -> None:
        with self._lock:
            self._open.clear()
            self._by_work.clear()
            self._numbers.clear()

    def add(self, call: Call, module: str, microbatch: int) -> None:
        """Before the collective runs: what goes in is recorded now."""
        recorder = self._agent.recorder
        with self._lock:
            for row in call.rows:
                key = (module or ROOT, row.exchange.function, microbatch)
                row.call = self._numbers[key] = self._numbers.get(key, -1) + 1
                row.module, row.microbatch = module, microbatch
                row.position = recorder.latest + 1
                row.input = self._buffer(row, "input", row.exchange.inputs)
                row.exchange = row.exchange._replace(inputs=[])  # must not live longer for us
                self._write(row, abi.BEGUN)
            self._open[id(call)] = call

    def _buffer(self, row: Row, side: str, tensors: Any) -> int:
        return self._buffers.write(row.module or ROOT, f"{row.exchange.function}.{side}",
                                   tensors, row.microbatch, row.call)

    def started(self, call: Call, work: Any) -> None:
        with self._lock:
            if work is None:
                self._finish(call, failed=False)
            elif not call.done:
                call.work = work
                self._by_work[id(work)] = call

    def failed(self, call: Call) -> None:
        with self._lock:
            self._finish(call, failed=True)

    def of_work(self, work: Any) -> Optional[Call]:
        call = self._by_work.get(id(work))
        return call if call is not None and call.work is work else None

    def of_output(self, tensor: Any) -> Optional[Call]:
        address = tensor.data_ptr() if self._by_work else 0
        with self._lock:
            return next((call for call in self._by_work.values()
                         if address and address in call.written), None)

    def done(self, call: Call) -> None:
        """What came out is there, and the program could not change it yet."""
        with self._lock:
            self._finish(call, failed=False)

    def sweep_sometimes(self) -> None:
        """Seldom where much is under way: who issues thousands of works pays for each once."""
        self._unswept += 1
        if 4 * self._unswept > len(self._by_work):
            self.sweep()

    def sweep(self) -> bool:
        """Finishes what is done and no longer in the program's hands; whether some is not done."""
        self._unswept = 0
        if not self._by_work:
            return False
        waiting = False
        with self._lock:
            for call in list(self._by_work.values()):
                if call.finished is None and _references(call) <= self._own:
                    waiting = not self.finish_completed(call) or waiting
        return waiting

    def end_iteration(self) -> None:
        """What is not done by now has no output in this segment."""
        with self._lock:
            for call in list(self._by_work.values()):
                if call.finished is None:
                    self.finish_completed(call)
            for call in list(self._open.values()):
                self._abandon(call)

    def finish_completed(self, call: Call) -> bool:
        """If it is; whether it was."""
        with self._lock:
            if call.done:
                return True
            if not self._is_over(call.work):
                return False
            try:
                self._wait(call.work)  # returns at once, or says that it failed
                failed = False
            except Exception:
                failed = True
            self._finish(call, failed)
            return True

    def _is_over(self, work: Any) -> bool:
        """A backend marks the future, for which C++ waits, just before the Work itself."""
        if self._is_completed(work):
            return True
        try:
            return bool(self._future(work).done())
        except RuntimeError:  # it has none
            return False

    def _abandon(self, call: Call) -> None:
        for row in call.rows:
            if row.exchange.outputs:
                self._agent.note("not recorded", f"comm/{row.module or ROOT}/"
                                 f"{row.exchange.function}.output", "the iteration ended before "
                                 "the program waited for it")
        call.done = True
        self._forget(call)

    def _finish(self, call: Call, failed: bool) -> None:
        if call.done:
            return
        call.done = True
        try:
            for row in call.rows:
                if not failed:
                    row.output = self._buffer(row, "output", row.exchange.outputs)
                self._write(row, abi.FAILED if failed else 0)
        finally:
            self._forget(call)

    def _forget(self, call: Call) -> None:
        self._open.pop(id(call), None)
        self._by_work.pop(id(call.work), None)
        call.work = None

    def _write(self, row: Row, flags: int) -> None:
        exchange, group = row.exchange, row.group
        result = self._agent.library.record_collective(
            exchange.function, group.name, sequence=row.sequence, member=group.member,
            size=group.size, count=exchange.count, dtype=self._agent.recorder.code_of(
                row.dtype), reduction=exchange.reduction, module=row.module,
            peer=exchange.peer, microbatch=row.microbatch, flags=row.flags | flags, input=row.input,
            output=row.output, position=row.position, input_splits=exchange.input_splits,
            output_splits=exchange.output_splits)
        if result < 0:
            raise RuntimeError(self._agent.library.last_error()
                               or f"ttrace_record_collective: {result}")
