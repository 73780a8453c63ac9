# SPDX-License-Identifier: Apache-2.0
"""Collectives write into tensors and leave their version counter as it was.

An output that is reduced in place after it was recorded would look like the same tensor still.
Every tensor that is handed to torch.distributed is therefore forgotten, and recorded anew when it
is met again.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

_NAMES = ("all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "recv", "irecv", "scatter",
          "all_gather", "all_gather_coalesced", "gather", "all_gather_into_tensor",
          "all_gather_single", "_all_gather_base", "reduce_scatter", "reduce_scatter_tensor",
          "reduce_scatter_single", "_reduce_scatter_base", "all_to_all", "all_to_all_single",
          "batch_isend_irecv")


def watch(torch: Any, touched: Callable[[Any], None]) -> None:
    """Calls touched(tensor) for every tensor argument, before the collective starts."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    places = (distributed, distributed.distributed_c10d)
    for name in _NAMES:
        original = getattr(places[1], name, None)
        if original is None:
            continue
        wrapped = _wrap(original, torch.Tensor, touched)
        for place in places:
            if vars(place).get(name) is original:
                setattr(place, name, wrapped)


def _wrap(original: Any, tensor: Any, touched: Callable[[Any], None]) -> Any:
    def report(value: Any) -> None:
        if isinstance(value, tensor):
            touched(value)
        elif isinstance(value, (list, tuple)):
            for member in value:
                report(member)
        elif hasattr(value, "peer") and hasattr(value, "tensor"):  # P2POp
            touched(value.tensor)

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        report(args)
        report(tuple(kwargs.values()))
        return original(*args, **kwargs)

    return collective
