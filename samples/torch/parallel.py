# SPDX-License-Identifier: Apache-2.0
"""Spreads the model over processes: tensor parallel by DTensor, data parallel by DDP or FSDP.

One mesh (dp, tp), or (replicate, shard, tp) where sharded copies are replicated. Tensor parallel
comes first and turns every parameter into a DTensor over tp. Data parallel then wraps the result:
DDP where the parameters are plain tensors, sharding with --fsdp (FSDP2) or --fsdp1, and FSDP2's
replicating sibling for dp x tp, because DDP cannot hold DTensors. Each layout imports only what it
uses, which keeps the start short.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Optional

import torch
from torch import nn


def start(args: Any) -> Optional[Any]:
    """Joins the process group and returns the mesh; None in a run that needs none."""
    if args.dp * args.tp == 1 and not args.mixed:
        return None
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # one plain process: sharded over itself
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    if args.replicas > 1:
        return init_device_mesh("cpu", (args.replicas, args.dp // args.replicas, args.tp),
                                mesh_dim_names=("replicate", "shard", "tp"))
    return init_device_mesh("cpu", (args.dp, args.tp), mesh_dim_names=("dp", "tp"))


def data_parallel_mesh(mesh: Any) -> Any:
    return mesh["replicate", "shard"] if mesh.ndim == 3 else mesh["dp"]


def data_parallel_rank(mesh: Optional[Any]) -> int:
    return 0 if mesh is None else mesh.get_rank() // mesh["tp"].size()


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


def wrap_each_layer(wrap: Any, model: nn.Module, mesh: Any, **options: Any) -> nn.Module:
    for layer in model.layers.values():
        wrap(layer, mesh=mesh, **options)
    return wrap(model, mesh=mesh, **options)


def wrap_in_fsdp2(model: nn.Module, mesh: Any, mixed: bool) -> nn.Module:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    types = dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else {}
    return wrap_each_layer(fully_shard, model, mesh, mp_policy=MixedPrecisionPolicy(**types))


def wrap_in_fsdp1(model: nn.Module, mesh: Any, joined: bool, mixed: bool) -> nn.Module:
    """`joined`: the program sees only the flat tensors that FSDP1 makes of the parameters."""
    from torch.distributed.fsdp import (FullyShardedDataParallel, MixedPrecision,
                                        ShardingStrategy)
    types = dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else {}
    strategy = ShardingStrategy.HYBRID_SHARD if mesh.ndim == 2 else ShardingStrategy.FULL_SHARD

    def wrap(module: nn.Module) -> nn.Module:
        return FullyShardedDataParallel(
            module, device_mesh=mesh, device_id=torch.device("cpu"), use_orig_params=not joined,
            sharding_strategy=strategy, mixed_precision=MixedPrecision(**types) if mixed else None)

    for name, layer in model.layers.items():
        model.layers[name] = wrap(layer)
    return wrap(model)


def parallelise(model: nn.Module, mesh: Optional[Any], args: Any) -> nn.Module:
    """Every rank has already drawn the same weights, so none are sent (src_data_rank=None)."""
    if mesh is None:
        return model
    if args.tp > 1:
        from torch.distributed.tensor.parallel import parallelize_module
        plan = tensor_parallel_plan(args.sp)
        parallelize_module(model, mesh["tp"], plan, src_data_rank=None)
    if args.dp == 1 and not args.mixed:
        return model
    over = data_parallel_mesh(mesh)
    if args.fsdp1:
        return wrap_in_fsdp1(model, over, args.fsdp1 == "joined", args.mixed)
    if args.fsdp:
        return wrap_in_fsdp2(model, over, args.mixed)
    if args.tp > 1:
        from torch.distributed._composable.replicate_with_fsdp import replicate
        return wrap_each_layer(replicate, model, over)
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, process_group=over.get_group())


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


def clip_gradients(model: nn.Module, largest: float) -> float:
    """The norm over all ranks. FSDP1's gradients are plain tensors, only it knows of the rest."""
    if hasattr(model, "clip_grad_norm_"):
        return whole(model.clip_grad_norm_(largest))
    return whole(torch.nn.utils.clip_grad_norm_(model.parameters(), largest))


def whole(value: torch.Tensor) -> float:
    """The norm of DTensor gradients is a DTensor itself, a sum still to be made."""
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).item()
