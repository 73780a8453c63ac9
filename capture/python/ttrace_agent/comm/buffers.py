# SPDX-License-Identifier: Apache-2.0
"""Records of what goes into a collective and what comes out of it.

They are never aliases of other records, nor others of them: that a buffer was not written by
anything a version counter sees is what the checks of collectives are to find out.
"""

from __future__ import annotations

import ctypes
from typing import Any, Sequence, Tuple

from .. import abi

COMM = "comm"


class Buffers:
    def __init__(self, agent: Any, kind: str):
        """`kind`: of the records, "" for none."""
        self._agent = agent
        self._kind = abi.KINDS.get(kind, -1)

    def write(self, module: str, slot: str, tensors: Sequence[Any], microbatch: int,
              call: int) -> int:
        """The record's sequence number, -1 when there is none. Several tensors become one."""
        recorder = self._agent.recorder
        if not tensors or self._kind < 0 or not recorder.plan(COMM, module, slot)[0]:
            return abi.NOT_ALIAS
        if any(tensor.is_sparse for tensor in tensors):
            self._agent.note("not recorded", f"{module}/{slot}", "a sparse tensor")
            return abi.NOT_ALIAS
        bits = [recorder.representable(tensor) for tensor in tensors]
        if any(part is None or part.dtype != bits[0].dtype for part in bits):
            self._agent.note("not recorded", f"{module}/{slot}", "its dtype cannot be recorded")
            return abi.NOT_ALIAS
        packed = [recorder.packed(part) for part in bits]
        shape, address, keep = _joined(packed)
        return recorder.write_bytes(COMM, module, slot, packed[0].dtype, self._kind, shape, address,
                                    microbatch, call)


def _joined(tensors: Sequence[Any]) -> Tuple[Tuple[int, ...], int, Any]:
    """(shape, address, what keeps it alive); no operator of torch runs, which others might see."""
    if len(tensors) == 1:
        return tuple(tensors[0].shape), tensors[0].data_ptr(), tensors
    whole = ctypes.create_string_buffer(max(sum(tensor.nbytes for tensor in tensors), 1))
    address = ctypes.addressof(whole)
    at = address
    for tensor in tensors:
        ctypes.memmove(at, tensor.data_ptr(), tensor.nbytes)
        at += tensor.nbytes
    return (sum(tensor.numel() for tensor in tensors),), address, whole
