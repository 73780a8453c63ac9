# SPDX-License-Identifier: Apache-2.0
"""Which call is this? Every forward call belongs to a micro-batch and has a number in it.

A frame is a call that is running; each thread has a stack of them. A context is one micro-batch of
one root: it numbers calls and keeps a log of them. Activation checkpointing calls modules a second
time, inside the backward pass and maybe when later micro-batches are under way. Such a recompute is
found in the log: as the next call after the recompute before it, if that has not been recomputed;
else by the address of its first input, which the checkpoint kept alive; else as the last call of
the earliest micro-batch that has not been recomputed. What it calls follows the log from there.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Set, Tuple

FORWARD, RECOMPUTE = "forward", "recompute"


class Context:
    """One micro-batch of a root."""

    __slots__ = ("microbatch", "numbers", "log", "glue")

    def __init__(self, microbatch: int):
        self.microbatch = microbatch
        self.numbers: Dict[str, int] = {}  # calls so far, by module name
        self.log: List["Frame"] = []  # its forward calls, also those that have ended
        self.glue: Set[Tuple[str, int, str]] = set()  # inputs that no module returned

    def next_call(self, name: str) -> int:
        call = self.numbers.get(name, 0)
        self.numbers[name] = call + 1
        return call


class Cursor:
    """Where in the log of a context a recompute is."""

    __slots__ = ("context", "index", "graph_task")

    def __init__(self, context: Context, index: int, graph_task: int):
        self.context = context
        self.index = index
        self.graph_task = graph_task


class Frame:
    """A call: while it runs, on its thread's stack; a forward call also in its context's log.

    One without `info` is muted: it hides all calls inside it.
    """

    __slots__ = ("module", "info", "phase", "context", "call", "address", "index", "recomputed",
                 "cursor", "inputs_done", "outputs_done", "keywords_done")

    def __init__(self, module: Any, info: Any = None, phase: str = FORWARD,
                 context: Optional[Context] = None, call: int = 0, address: int = 0):
        self.module = module  # None when the call has ended
        self.info = info
        self.phase = phase
        self.context = context
        self.call = call
        self.address = address  # of its first tensor input, 0: none
        self.index = 0  # in the log
        self.recomputed = 0  # how often
        self.cursor: Optional[Cursor] = None
        self.inputs_done = False
        self.outputs_done = False  # by a call of the same name inside this one
        self.keywords_done = False


class Stack(threading.local):
    def __init__(self) -> None:
        self.frames: List[Frame] = []
        self.latest: Optional[Cursor] = None  # of the recompute that ended last


def enter(module: Any, info: Any, context: Context, parent: Optional[Frame],
          address: int) -> Frame:
    """A first forward call; a call that `parent` only wraps has its number."""
    if info.nested and parent is not None and parent.info.name == info.name:
        call = parent.call
    else:
        call = context.next_call(info.name)
    frame = Frame(module, info, FORWARD, context, call, address)
    frame.index = len(context.log)
    context.log.append(frame)
    info.history.append(frame)
    return frame


def enter_recompute(module: Any, info: Any, parent: Optional[Frame], latest: Optional[Cursor],
                    address: int, graph_task: int) -> Optional[Frame]:
    """A call in the backward pass, None when no forward call can be its first one."""
    cursor = parent.cursor if parent is not None and parent.phase == RECOMPUTE else None
    first = (_ahead(info, cursor) if cursor is not None
             else _find_first_call(info, latest, address, graph_task))
    if first is None:
        return None
    first.recomputed += 1
    first.address = address  # a checkpoint inside this one keeps the new input
    frame = Frame(module, info, RECOMPUTE, first.context, first.call)
    frame.cursor = cursor or Cursor(first.context, 0, graph_task)
    frame.cursor.index = first.index + 1
    return frame


def _find_first_call(info: Any, latest: Optional[Cursor], address: int,
                     graph_task: int) -> Optional[Frame]:
    following = None
    if latest is not None and latest.graph_task == graph_task:
        following = _next_in_log(info, latest)
        if following is not None and not following.recomputed:
            return following
    return _by_address(info, address) or following or _oldest_pending(info)


def _next_in_log(info: Any, cursor: Cursor) -> Optional[Frame]:
    """Modules that are made anew for each call are equal by name only."""
    log = cursor.context.log
    if cursor.index < len(log) and log[cursor.index].info.name == info.name:
        return log[cursor.index]
    return None


def _ahead(info: Any, cursor: Cursor) -> Optional[Frame]:
    """The second pass may leave out calls, it makes no new ones."""
    log = cursor.context.log
    for index in range(cursor.index, len(log)):
        if log[index].info.name == info.name:
            return log[index]
    return None


def _by_address(info: Any, address: int) -> Optional[Frame]:
    """Of several calls with that input the one that was recomputed least, the earliest of these."""
    if not address:
        return None
    found = [call for call in info.history if call.address == address]
    return min(found, key=lambda call: call.recomputed, default=None)


def _oldest_pending(info: Any) -> Optional[Frame]:
    pending = [call for call in info.history if not call.recomputed]
    return min(pending, key=lambda call: (call.context.microbatch, -call.call), default=None)
