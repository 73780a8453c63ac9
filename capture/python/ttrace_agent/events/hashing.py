# SPDX-License-Identifier: Apache-2.0
"""The bytes of tensors that do not lie packed in this machine's memory."""

from __future__ import annotations

from typing import Any, Callable

from ..adapters import dtensor


def packer(torch: Any) -> Callable[[Any], Any]:
    """packed(tensor): its elements in row-major order on the CPU; None: it has no plain bytes."""

    def packed(tensor: Any) -> Any:
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

    return packed
