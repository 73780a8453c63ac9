# SPDX-License-Identifier: Apache-2.0
"""Where the program calls what makes up its training loop: file and line.

A row, before that of the call. Of functions that are called a few times a step; whatever they call
is called from there, too.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Tuple

from . import wrappers
from .stream import Stream

SITE = 6  # low three bits of a row's first integer
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OWNERS = ("torch.optim.", "torch.nn.utils.clip_grad.", "torch.nn.modules.module.Module.",
           "torch._tensor.Tensor.", "torch.amp.", "torch.cuda.amp.", "torch.random.",
           "torch.distributed.")
# Modules call them of their parts.
_RECURSIVE = {"train", "eval", "state_dict", "load_state_dict"}
_OF_LOOPS = _RECURSIVE | {
    "step", "_optimizer_step_code", "zero_grad", "backward", "clip_grad_norm_",
    "clip_grad_value_", "scale", "unscale_", "update", "manual_seed", "all_reduce", "all_gather",
    "all_gather_into_tensor", "broadcast", "reduce_scatter", "reduce_scatter_tensor", "barrier", "init_process_group"}


def of_loop(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last in _OF_LOOPS and (name.startswith(_OWNERS)
                                  or last == "step" and not name.startswith("torch."))


class Sites:
    def __init__(self, torch: Any, stream: Stream):
        self._torch = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._here = os.getcwd() + os.sep
        self._stream = stream
        self._owners: Dict[int, Tuple[Any, str]] = {}  # by id of the code, which is kept
        self._codes: Dict[Tuple[int, int], int] = {}  # of rows, by code and place in it

    def after_fork(self) -> None:
        self._codes = {}

    def wrap(self, function: Any, name: str) -> Any:
        local, note = self._stream.local, self.note
        recursive = name.rpartition(".")[2] in _RECURSIVE

        def sited(*args: Any, **kwargs: Any) -> Any:
            rows = local.rows
            if rows is not None:
                note(rows, recursive)
            return function(*args, **kwargs)

        return wrappers.dress(sited, function)

    def note(self, rows: Any, recursive: bool = False) -> None:
        """The first frame of the program; `recursive`: unless torch calls."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            known = self._owners.get(id(code))
            owner = known[1] if known is not None else self._owner(code)
            if owner == "program":
                break
            if recursive and owner == "torch":
                return
            frame = frame.f_back
        else:
            return
        key = (id(code), frame.f_lasti)
        row = self._codes.get(key)
        if row is None:
            path = code.co_filename
            path = path[len(self._here):] if path.startswith(self._here) else path
            row = self._codes[key] = self._stream.text(f"{path}:{frame.f_lineno}") << 3 | SITE
        rows.append(row, 0, 0, 0)

    def _owner(self, code: Any) -> str:
        path = code.co_filename
        inside = path.startswith(_PACKAGE) or (path.startswith("<") and path != "<stdin>")
        owner = ("ttrace" if inside else "torch" if path.startswith(self._torch) else "program")
        self._owners[id(code)] = code, owner
        return owner
