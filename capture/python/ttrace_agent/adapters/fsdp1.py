# SPDX-License-Identifier: Apache-2.0
"""FullyShardedDataParallel (FSDP1): parameters are pieces of flattened ones.

Each wrapped module has a handle. It joins the module's parameters, flattened, to one tensor, pads
it and cuts it into equal parts, one a rank, wherever that falls. With use_orig_params a program
sees this rank's piece of each parameter, one-dimensional and maybe empty, under the parameter's
own name; without, it sees the part of the joined tensor alone, which is recorded as those pieces.
During a forward pass parameters are whole and no parameters; nothing is looked at then.
"""

from __future__ import annotations

import functools
import json
import sys
import weakref
from typing import Any, List, NamedTuple, Optional, Tuple

from .. import layouts
from . import dtensor

_handles: "weakref.WeakSet[Any]" = weakref.WeakSet()


class Piece(NamedTuple):
    """What this rank's part of a joined tensor holds of one parameter."""

    module: Any  # that has the parameter
    key: str
    layout: str
    part: Tuple[int, int]  # first element in this rank's part, and how many


def watch(agent: Any, after_import: Any) -> None:
    for name in ("_flat_param", "flat_param"):  # its name since torch 2.2, and before
        after_import(f"torch.distributed.fsdp.{name}", _remember_handles)
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel",
                 lambda module: _wrap_clipping(module.FullyShardedDataParallel, agent))


def _remember_handles(module: Any) -> None:
    initialise = module.FlatParamHandle.__init__

    @functools.wraps(initialise)
    def remembered(handle: Any, *args: Any, **kwargs: Any) -> None:
        initialise(handle, *args, **kwargs)
        _handles.add(handle)

    module.FlatParamHandle.__init__ = remembered


def parameter_layout(parameter: Any) -> Optional[str]:
    """None: it is no piece of a flattened parameter."""
    if not getattr(parameter, "_fsdp_flattened", False):
        return None
    for handle in list(_handles):
        flat = handle.flat_param
        for number, original in enumerate(flat._params or ()):
            if original is parameter:
                whole = tuple(parameter.shape) == tuple(flat._shapes[number])
                return "" if whole and not handle.uses_sharded_strategy else _layout(flat, number)
    return ""


def pieces(parameter: Any) -> List[Piece]:
    """Of which parameters a tensor that only the wrapper knows is made; [] of any other."""
    if not getattr(parameter, "_fsdp_flattened", False):
        return []
    for handle in list(_handles):
        flat = handle.flat_param
        if flat is parameter and flat._params is None:
            return [Piece(info.module, info.param_name, _layout(flat, number), _part(flat, number))
                    for number, info in enumerate(flat._param_infos)]
    return []


def _part(flat: Any, number: int) -> Tuple[int, int]:
    held = flat._shard_param_infos[number]
    return (held.offset_in_shard, held.numel_in_shard) if held.in_shard else (0, 0)


def _layout(flat: Any, number: int) -> str:
    """"" where the joined tensor has its elements in another order than that of their indices."""
    contiguous = getattr(flat, "_contiguities", None)
    if contiguous is not None and not contiguous[number]:
        return ""
    held = flat._shard_param_infos[number]
    local = [int(extent) for extent in flat._shapes[number]]
    dims, shape = _before_flattening(flat._param_extensions[number], local)
    start, count = held.intra_param_start_idx or 0, held.numel_in_shard or 0
    return layouts.to_json(dims, shape, "fsdp", {"shape": local, "start": start, "count": count})


def _before_flattening(spec: Any, local: List[int]) -> Tuple[str, List[int]]:
    """(dims, logical shape) of what was flattened: this rank's part of a DTensor, or all."""
    if hasattr(spec, "placements"):
        declared = dtensor.declared(spec)
        if declared:
            members = json.loads(declared)
            return members["dims"], members["shape"]
    return layouts.dims_text([[]] * len(local)), local


def data_parallel_axis(module: Any, torch: Any) -> Optional[Tuple[str, int, int]]:
    """(dp, size, coordinate) when the module is a FullyShardedDataParallel."""
    fsdp = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if fsdp is None or not isinstance(module, fsdp.FullyShardedDataParallel):
        return None
    group = module.process_group
    return "dp", group.size(), torch.distributed.get_rank(group)


def data_parallel_ranks(module: Any, torch: Any) -> List[List[int]]:
    """Of a FullyShardedDataParallel the ranks with the other pieces, and those with copies."""
    if data_parallel_axis(module, torch) is None:
        return []
    groups = [module.process_group, getattr(module, "_inter_node_pg", None)]
    return [torch.distributed.get_process_group_ranks(group) for group in groups
            if group is not None]


def _wrap_clipping(fsdp: Any, agent: Any) -> None:
    """Its own clipping knows that other ranks have the rest of the gradients."""
    original = fsdp.clip_grad_norm_

    @functools.wraps(original)
    def clip(module: Any, *args: Any, **kwargs: Any) -> Any:
        steps = agent.steps
        if not steps.recording or steps.clipping:
            return original(module, *args, **kwargs)
        agent.guarded("clip_grad_norm_", steps.before_clipping, module.parameters())
        steps.clipping = True
        try:
            norm = original(module, *args, **kwargs)
        finally:
            steps.clipping = False
        agent.guarded("clip_grad_norm_", steps.after_clipping, norm)
        return norm

    fsdp.clip_grad_norm_ = clip
