# SPDX-License-Identifier: Apache-2.0
"""All that the agent knows about frameworks. The rest of it asks here and never names one.

plain: PyTorch's own wrappers, clipping and loss scaling. dtensor: DTensor and DeviceMesh.
fsdp1: FullyShardedDataParallel. fsdp2: fully_shard. megatron: Megatron-Core. deepspeed: its ZeRO-1 and 2. To
teach ttrace a framework, add a file beside these and let the functions below ask it, as
docs/frameworks.md says.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from . import deepspeed, dtensor, fsdp1, fsdp2, megatron, plain
from .masters import Masters

local_part = dtensor.local_part
is_compiled = plain.is_compiled
is_generated = plain.is_generated
class_of = plain.class_of
passes_on = megatron.passes_on
parameter_name = megatron.parameter_name
gathers_late = megatron.gathers_late
may_be_padded = megatron.may_be_padded
pieces = fsdp1.pieces


def watch(agent: Any, after_import: Any, torch: Any) -> None:
    """Wraps what is there, and the rest as soon as it is imported."""
    plain.watch(agent, after_import, torch)
    fsdp1.watch(agent, after_import)
    megatron.watch(agent, after_import)
    deepspeed.watch(agent, after_import)
    after_import("torch.distributed.device_mesh",
                 lambda module: dtensor.watch_meshes(module, agent.mesh.device_meshes))
    after_import("torch.distributed.tensor.parallel.style",
                 lambda module: dtensor.watch_tensor_parallel(module, agent.mesh.tensor_meshes))


def segment(owners: List[Any], key: str, child: Any, at_top: bool) -> str:
    """What the child `key` of owners[-1] adds to its name; "" when that only wraps the child.

    `owners` are the modules above the child, the root first. `at_top`: all of them are wrappers, as
    far as is known.
    """
    if plain.is_wrapped(owners[-1], key, at_top):
        return ""
    return megatron.segment(owners, key, child) or key


def parameter_layout(parameter: Any, module: Any) -> str:
    """What the program itself declares, as an entry of /layouts; "" when it says nothing."""
    if dtensor.is_dtensor(parameter):
        return dtensor.declared(parameter._spec)
    piece = fsdp1.parameter_layout(parameter)
    return piece if piece is not None else megatron.parameter_layout(parameter, module)


def data_parallel_axis(module: Any, torch: Any) -> Optional[Tuple[str, int, int]]:
    """(name, size, coordinate), from a wrapper around the model that knows."""
    return (plain.data_parallel_axis(module, torch) or fsdp1.data_parallel_axis(module, torch)
            or deepspeed.data_parallel_axis(module, torch))


def data_parallel_ranks(module: Any, torch: Any) -> List[List[int]]:
    """Ranks that a wrapper lets work on samples of their own: a list for each axis of its mesh."""
    return (plain.data_parallel_ranks(module, torch) + fsdp1.data_parallel_ranks(module, torch)
            + fsdp2.data_parallel_ranks(module))


def masters(parameters: List[Any]) -> Masters:
    """What the tensors stand for that optimizers hold beside these parameters."""
    return {**megatron.masters(parameters), **deepspeed.masters()}


def reload_masters() -> None:
    megatron.reload_masters()
    deepspeed.reload_masters()
