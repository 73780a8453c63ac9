# SPDX-License-Identifier: Apache-2.0
"""XXH3 of whole tensors, wherever their elements lie."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ..adapters import dtensor
from .native import Looker


def make_looker(torch: Any, library: str, describe: Callable[[Any], int]) -> Any:
    """`library`: the path of libttrace_capture.so; `describe(tensor)`: number of a description."""
    function = ctypes.cast(ctypes.CDLL(library).ttrace_hash, ctypes.c_void_p).value
    return Looker(torch.Tensor, torch.nn.Parameter, function, _packer(torch), describe)


def _packer(torch: Any) -> Callable[[Any], Any]:
    """packed(tensor): its elements in row-major order on the CPU; None: it has no plain bytes."""

    def packed(tensor: Any) -> Any:
        try:
            if tensor.is_cuda and torch._C._cuda_isCurrentStreamCapturing():
                return None
            local, _ = dtensor.local_part(tensor)
            if local is None:
                return None
            local = local.detach()
            if local.is_cpu and local.numel() and not local.untyped_storage().nbytes():
                return None  # its memory was freed
            if local.layout is not torch.strided:
                local = local.to_dense()
            return local.resolve_conj().resolve_neg().contiguous().cpu()
        except (RuntimeError, NotImplementedError, AttributeError):  # no storage of its own
            return None

    return packed
