# SPDX-License-Identifier: Apache-2.0
"""FSDP2 (fully_shard, replicate): parameters are DTensors, and their mesh deals out samples."""

from __future__ import annotations

from typing import Any, List

from . import dtensor


def data_parallel_ranks(module: Any) -> List[List[int]]:
    """Of each mesh dimension over which it shards or replicates: the ranks on it with this one."""
    get_state = getattr(module, "_get_fsdp_state", None)
    if get_state is None:
        return []
    state = get_state()
    groups = getattr(state, "_fsdp_param_groups", None)  # since torch 2.12; one of them before
    if groups is None:
        groups = [getattr(state, "_fsdp_param_group", None)]
    lines = []
    for info in (getattr(group, "mesh_info", None) for group in groups):
        for side in ("shard_mesh_dim", "replicate_mesh_dim"):
            dim = getattr(info, side, None)
            if dim is not None:
                lines.append(dtensor.ranks_along(info.mesh, dim))
    return lines
