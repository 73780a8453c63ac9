# SPDX-License-Identifier: Apache-2.0
"""Spreads the model over processes: tensor parallel by DTensor, data parallel by DDP or FSDP2.

One mesh (dp, tp). Tensor parallel comes first and turns every parameter into a DTensor over tp.
Data parallel then wraps the result: DDP where the parameters are plain tensors, FSDP2's sharding
with --fsdp, and its replicating sibling for dp x tp, because DDP cannot hold DTensors. Each
layout imports only what it uses, which keeps the start short.
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch
from torch import nn


def start(dp: int, tp: int) -> Optional[Any]:
    """Joins the process group and returns the mesh; None in a run of one process."""
    if dp * tp == 1:
        return None
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("gloo")
    return init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))


def stop(mesh: Optional[Any]) -> None:
    if mesh is not None:
        torch.distributed.destroy_process_group()


def replicated(output_layout: Any) -> Any:
    """A parallel style: whole parameters and inputs on every rank, output as a local tensor.

    The parameters must still be DTensors: norms and optimizers refuse lists that mix both kinds.
    """
    from torch.distributed.tensor import DTensor, Replicate, distribute_module
    from torch.distributed.tensor.parallel import ParallelStyle

    def prepare_input(module, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

    def prepare_output(module, output, mesh):
        return output.redistribute(placements=[output_layout]).to_local()

    class Replicated(ParallelStyle):
        def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
            return distribute_module(module, device_mesh, None, prepare_input, prepare_output)

    return Replicated()


def tensor_parallel_plan(sequence_parallel: bool) -> dict[str, Any]:
    """Between the sublayers activations are whole, or cut along the sequence with `--sp`."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                                   RowwiseParallel, SequenceParallel)
    between = Shard(1) if sequence_parallel else Replicate()
    norm = SequenceParallel() if sequence_parallel else replicated(between)
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "positions": replicated(between),
        "layers.*.attention_norm": norm,
        "layers.*.attention.wq": ColwiseParallel(),
        "layers.*.attention.wk": ColwiseParallel(),
        "layers.*.attention.wv": ColwiseParallel(),
        "layers.*.attention.wo": RowwiseParallel(output_layouts=between),
        "layers.*.ffn_norm": norm,
        "layers.*.feed_forward.w1": ColwiseParallel(),
        "layers.*.feed_forward.w2": RowwiseParallel(output_layouts=between),
        "norm": norm,
        "output": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    if sequence_parallel:
        # Gathers the sequence once per sublayer instead of once per linear.
        gather = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        plan["layers.*.attention"] = gather
        plan["layers.*.feed_forward"] = gather
    return plan


def wrap_each_layer(wrap: Any, model: nn.Module, mesh: Any) -> nn.Module:
    for layer in model.layers.values():
        wrap(layer, mesh=mesh)
    return wrap(model, mesh=mesh)


def parallelise(model: nn.Module, mesh: Optional[Any], sequence_parallel: bool,
                fsdp: bool) -> nn.Module:
    """Every rank has already drawn the same weights, so none are sent (src_data_rank=None)."""
    if mesh is None:
        return model
    dp, tp = mesh.shape
    if tp > 1:
        from torch.distributed.tensor.parallel import parallelize_module
        plan = tensor_parallel_plan(sequence_parallel)
        parallelize_module(model, mesh["tp"], plan, src_data_rank=None)
    if dp == 1:
        return model
    if fsdp:
        from torch.distributed.fsdp import fully_shard
        return wrap_each_layer(fully_shard, model, mesh["dp"])
    if tp > 1:
        from torch.distributed._composable.replicate_with_fsdp import replicate
        return wrap_each_layer(replicate, model, mesh["dp"])
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, process_group=mesh["dp"].get_group())


@contextlib.contextmanager
def gradient_sync(model: nn.Module, wanted: bool):
    """Only the last micro-batch of an iteration reduces the gradients over dp."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(wanted)
        yield
    elif hasattr(model, "no_sync") and not wanted:
        with model.no_sync():
            yield
    else:
        yield


def mean_over_ranks(value: float, mesh: Optional[Any]) -> float:
    if mesh is None:
        return value
    total = torch.tensor(value, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    return total.item() / mesh.size()


def whole(value: torch.Tensor) -> float:
    """The norm of DTensor gradients is a DTensor itself, a sum still to be made."""
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).item()
