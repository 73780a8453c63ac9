# SPDX-License-Identifier: Apache-2.0
"""Which module issues a collective, and in which micro-batch.

In the forward pass it is the innermost module whose call is recorded. In the backward pass it is
the one whose output's gradient arrived last: what runs from there on, until the next gradient
arrives, is its backward. The library is told, too, for those that see calls from below Python.
"""

from __future__ import annotations

import threading
from typing import Any, Tuple

from ..calls import Stack

NOWHERE = ("", -1)


class _Thread(threading.local):
    pushed = ""  # what the library was told
    task = -1  # the backward pass that `backward` belongs to
    backward: Tuple[str, int] = NOWHERE


class Scopes:
    def __init__(self, torch: Any, library: Any, stack: Stack):
        self._library = library
        self._stack = stack
        self._graph_task = torch._C._current_graph_task_id
        self._thread = _Thread()
        self._microbatch = -1

    def current(self) -> Tuple[str, int]:
        """(module or "", micro-batch or -1)"""
        for frame in reversed(self._stack.frames):
            if frame.info is not None:
                return frame.info.name, frame.context.microbatch
        thread = self._thread
        return thread.backward if thread.task == self._graph_task() != -1 else NOWHERE

    def gradient_arrived(self, module: str, microbatch: int) -> None:
        thread = self._thread
        thread.task, thread.backward = self._graph_task(), (module, microbatch)
        self.update()

    def backward_over(self) -> None:
        self._thread.task = -1
        self.update()

    def begin_iteration(self) -> None:
        self._microbatch = -1  # as the library has it then

    def update(self) -> None:
        module, microbatch = self.current()
        thread = self._thread
        if module != thread.pushed:
            if thread.pushed:
                self._library.pop_scope()
            if module:
                self._library.push_scope(module)
            thread.pushed = module
        if microbatch not in (-1, self._microbatch):
            self._microbatch = microbatch
            self._library.begin_microbatch(microbatch)
