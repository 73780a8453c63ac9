# SPDX-License-Identifier: Apache-2.0
"""XXH3 of whole tensors, many in one call of the library."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional

from ..adapters import dtensor


class Hasher:
    def __init__(self, library: Any, torch: Any):
        """`library`: what TTRACE_LIB names."""
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._hash = library.ttrace_hash
        self._hash.restype = ctypes.c_int
        self._hash.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
        self._room = 0
        self._make_room(64)

    def _make_room(self, count: int) -> None:
        self._room = count
        self._addresses = (ctypes.c_uint64 * count)()
        self._sizes = (ctypes.c_uint64 * count)()
        self._hashes = (ctypes.c_int64 * count)()
        self._pointers = [ctypes.addressof(array)
                          for array in (self._addresses, self._sizes, self._hashes)]

    def hashes(self, tensors: List[Any]) -> List[Optional[int]]:
        """Of packed row-major elements, as signed integers; None where there are no plain bytes."""
        count = len(tensors)
        if count > self._room:
            self._make_room(2 * count)
        addresses, sizes = self._addresses, self._sizes
        kept, unknown, plain = [], [], self._plain
        for place, tensor in enumerate(tensors):
            if type(tensor) not in plain or not (tensor.is_cpu and tensor.is_contiguous()):
                tensor = self._packed(tensor)
                if tensor is None:
                    unknown.append(place)
                    addresses[place] = sizes[place] = 0
                    continue
                kept.append(tensor)
            addresses[place] = tensor.data_ptr()
            sizes[place] = tensor.nbytes
        self._hash(self._pointers[0], self._pointers[1], count, self._pointers[2])
        found: List[Optional[int]] = self._hashes[:count]
        for place in unknown:
            found[place] = None
        return found

    def _packed(self, tensor: Any) -> Any:
        torch = self._torch
        try:
            if tensor.is_cuda and torch._C._cuda_isCurrentStreamCapturing():
                return None
            local, _ = dtensor.local_part(tensor)
            if local is None:
                return None
            local = local.detach()
            if local.layout is not torch.strided:
                local = local.to_dense()
            return local.resolve_conj().resolve_neg().contiguous().cpu()
        except (RuntimeError, NotImplementedError, AttributeError):  # no storage of its own
            return None
