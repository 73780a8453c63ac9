# SPDX-License-Identifier: Apache-2.0
"""What a whole model is given: hashes of the tensors among its arguments.

A row each, before the row of the call. They tell whether ranks, or passes of a step, share a batch.
"""

from __future__ import annotations

from typing import Any, List, Optional

from .stream import Stream

CONTENT = 5  # low three bits of a row's first integer
MOST_TENSORS = 256  # of one argument
DEPTH = 4


class Contents:
    def __init__(self, torch: Any, stream: Stream, looker: Any):
        self._tensor = torch.Tensor
        self._modes = torch._C._len_torch_dispatch_stack
        self._capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", bool)
        self._stream = stream
        self._looker = looker

    def note(self, rows: Any, args: Any, kwargs: Any) -> None:
        """Of a method: the first argument is its object."""
        if self._modes():  # a tracer, for which hashing would be part of the model
            return
        for place, value in enumerate(args):
            if place:
                self._note(rows, str(place), value)
        for name, value in kwargs.items():
            self._note(rows, name, value)

    def readable(self, tensor: Any) -> bool:
        """Whether asking for its values does nothing else."""
        return not self._modes() and not (tensor.is_cuda and self._capturing())

    def _note(self, rows: Any, argument: str, value: Any) -> None:
        found = self._hash(value)
        if found is not None:
            rows.append(self._stream.text(argument) << 3 | CONTENT, found, 0, 0)

    def _hash(self, value: Any) -> Optional[int]:
        tensors: List[Any] = []
        self._collect(value, tensors, 0)
        if not tensors or len(tensors) > MOST_TENSORS:
            return None
        try:
            hashes = [self._looker.hash(tensor) for tensor in tensors]
        except RuntimeError:  # no memory of its own: within torch.func
            return None
        if None in hashes:
            return None
        # Of integers Python's own hash is the same in all processes.
        return hashes[0] if len(hashes) == 1 else hash(tuple(hashes))

    def _collect(self, value: Any, tensors: List[Any], depth: int) -> None:
        if isinstance(value, self._tensor):
            tensors.append(value)
        elif depth < DEPTH and type(value) in (list, tuple, dict):
            for member in value.values() if type(value) is dict else value:
                if len(tensors) > MOST_TENSORS:
                    return
                self._collect(member, tensors, depth + 1)
