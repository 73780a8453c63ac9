# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core: numbers that count globally, cuts that parameters declare, its own optimizers.

Everything is read from attributes that Megatron itself relies on. Its optimizers hold fp32 masters,
whole or as flat pieces, beside the model's parameters, and their step() clips in between: so step()
and prepare_grads() are wrapped when the module is imported.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Iterator, List, Optional, Tuple

from .. import layouts
from .masters import Master, Masters

_optimizers: "weakref.WeakSet[Any]" = weakref.WeakSet()  # all but the chains of them


def _parallel_state() -> Optional[Any]:
    """Megatron's module of process groups, when the program uses it."""
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None or not state.model_parallel_is_initialized():
        return None
    return state


def _is_megatron(module: Any) -> bool:
    return any(base.__module__.startswith("megatron.") for base in type(module).__mro__)


# ---- names ----


def segment(owners: List[Any], key: str, child: Any) -> Optional[str]:
    """The global number of a layer or an expert that its list counts from 0 on each rank."""
    if not key.isdigit() or not _is_megatron(child):
        return None
    for owner in reversed(owners):  # the layer of experts stands a few modules above them
        indices = getattr(owner, "local_expert_indices", None)
        if indices is not None and len(indices) == len(owners[-1]._modules):
            return str(indices[int(key)])
    number = getattr(child, "layer_number", None)
    return str(number - 1) if isinstance(number, int) else None


def parameter_name(name: str, parameter: Any) -> str:
    """The output layer's copy of a tied embedding, on another pipeline stage, is the embedding."""
    tail = "output_layer.weight"
    if getattr(parameter, "shared_embedding", False) and name.endswith(tail):
        return name[:-len(tail)] + "embedding.word_embeddings.weight"
    return name


def passes_on(module: Any) -> bool:
    """Its output is only the last local layer's: the rest of it is on the next pipeline stage."""
    return getattr(module, "post_process", None) is False and _is_megatron(module)


def parameter_layout(parameter: Any, module: Any) -> str:
    state = _parallel_state()
    if state is None:
        return ""
    cut = getattr(parameter, "tensor_model_parallel", None)
    if cut is None or (cut and getattr(parameter, "partition_dim", -1) < 0):
        return _checkpoint_layout(parameter, module, state)
    shape = list(parameter.shape)
    cuts: List[List[str]] = [[] for _ in shape]
    if cut:
        axis, size = _tensor_axis(state, getattr(module, "is_expert", False))
        dim, stride = parameter.partition_dim, parameter.partition_stride
        cuts[dim] = [axis + (f":/{stride}" if stride > 1 else "")]
        shape[dim] *= size
    return layouts.to_json(layouts.dims_text(cuts), shape, "megatron")


def _checkpoint_layout(parameter: Any, module: Any, state: Any) -> str:
    """By what the module writes into distributed checkpoints, where attributes do not say it.

    Only plain cuts over tensor parallel ranks; "" for all else, and where the module cannot tell.
    """
    size = state.get_tensor_model_parallel_world_size()
    if size == 1 or not _is_megatron(module) or not hasattr(module, "sharded_state_dict"):
        return ""
    try:
        written = [entry for entry in module.sharded_state_dict().values()
                   if getattr(entry, "data", None) is parameter]
    except Exception:  # checkpoints may need what this run has not
        return ""
    if len(written) != 1 or not hasattr(written[0], "global_shape"):
        return ""
    entry, shape = written[0], list(parameter.shape)
    if entry.prepend_axis_num or len(entry.global_shape) != len(shape):
        return ""
    whole = [int(extent) for extent in entry.global_shape]
    dims = [dim for dim, extent in enumerate(shape) if whole[dim] != extent]
    rank = state.get_tensor_model_parallel_rank()
    for dim in dims:
        if whole[dim] != shape[dim] * size or entry.global_offset[dim] != shape[dim] * rank:
            return ""
    if len(dims) > 1:
        return ""
    cuts = [["tp"] if dim in dims else [] for dim in range(len(shape))]
    return layouts.to_json(layouts.dims_text(cuts), whole, "megatron checkpoint")


def _tensor_axis(state: Any, expert: bool) -> Tuple[str, int]:
    size = state.get_tensor_model_parallel_world_size()
    if expert:
        expert_size = state.get_expert_tensor_parallel_world_size()
        if expert_size != size:
            return "etp", expert_size
    return "tp", size


def may_be_padded(parameter: Any) -> bool:
    """The vocabulary is padded to a multiple that depends on the layout."""
    return bool(getattr(parameter, "is_embedding_or_output_parameter", False))


# ---- mesh ----


def axes() -> List[Tuple[str, int, int]]:
    """(name, size, coordinate), outermost first; [] without Megatron."""
    state = _parallel_state()
    if state is None:
        return []
    found = []
    for name, kind in (("pp", "pipeline_model_parallel"), ("dp", "data_parallel"),
                       ("ep", "expert_model_parallel"), ("cp", "context_parallel"),
                       ("tp", "tensor_model_parallel")):
        size = getattr(state, f"get_{kind}_world_size")()
        found.append((name, size, getattr(state, f"get_{kind}_rank")()))
    size = state.get_expert_tensor_parallel_world_size()
    if size != found[-1][1]:
        found.append(("etp", size, state.get_expert_tensor_parallel_rank()))
    return [axis for axis in found if axis[1] > 1 or axis[0] in ("pp", "dp", "tp")]


# ---- optimizers ----


def _flat_pieces(optimizer: Any) -> Iterator[Tuple[Any, Master]]:
    groups = optimizer.optimizer.param_groups
    for parameter, (group, order) in optimizer.model_param_group_index_map.items():
        piece = optimizer._get_model_param_range_map(parameter)["param"]
        flat = {"shape": list(parameter.shape), "start": piece.start,
                "count": piece.end - piece.start}
        yield groups[group]["params"][order], Master(parameter, flat)


def masters(parameters: List[Any]) -> Masters:
    found: Masters = {}
    for parameter in parameters:
        main = getattr(parameter, "main_param", None)
        if main is not None and not getattr(parameter, "main_param_sharded", False):
            found[id(main)] = (main, [Master(parameter)])
    for optimizer in list(_optimizers):
        if hasattr(optimizer, "model_param_group_index_map"):
            for main, master in _flat_pieces(optimizer):
                found[id(main)] = (main, [master])
    return found


def reload_masters() -> None:
    """The parameters were set from outside: the optimizers' copies must follow."""
    for optimizer in list(_optimizers):
        optimizer.reload_model_params()


def gathers_late(module: Any) -> bool:
    """Parameters are whole only inside the forward pass: the gather overlaps with it."""
    config = getattr(module, "ddp_config", None)
    return (getattr(config, "overlap_param_gather", False)
            and getattr(config, "use_distributed_optimizer", False))


def watch(agent: Any, after_import: Any) -> None:
    def wrap(module: Any) -> None:
        _wrap_optimizers(module, agent)

    for name in ("optimizer", "layer_wise_optimizer"):
        after_import(f"megatron.core.optimizer.{name}", wrap)
    after_import("megatron.core.transformer.moe.router",
                 lambda module: _wrap_router(module.Router, agent))


def _wrap_router(router: Any, agent: Any) -> None:
    """Logits are made and used inside of one call; near ties are decided by their last bit."""
    gating = router.gating

    @functools.wraps(gating)
    def gated(module: Any, *args: Any, **kwargs: Any) -> Any:
        return agent.hooks.inner_output(module, "output.logits", gating(module, *args, **kwargs))

    router.gating = gated


def _wrap_optimizers(module: Any, agent: Any) -> None:
    base = getattr(module, "MegatronOptimizer", None)
    if base is None:
        return
    if base.__module__ == module.__name__:
        base.__init__ = _remembering(base.__init__)
    for kind in list(vars(module).values()):
        if not isinstance(kind, type) or not issubclass(kind, base) or kind is base:
            continue
        if kind.__module__ != module.__name__:
            continue
        if "step" in vars(kind):
            kind.step = _wrapped_step(kind.step, agent)
        if "prepare_grads" in vars(kind):
            kind.prepare_grads = _wrapped_prepare(kind.prepare_grads, agent)


def _remembering(initialise: Any) -> Any:
    @functools.wraps(initialise)
    def remembered(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        initialise(optimizer, *args, **kwargs)
        _optimizers.add(optimizer)

    return remembered


def _wrapped_prepare(prepare: Any, agent: Any) -> Any:
    @functools.wraps(prepare)
    def prepared(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = prepare(optimizer, *args, **kwargs)
        if not hasattr(optimizer, "chained_optimizers"):  # its members have reported already
            clips = getattr(optimizer.config, "clip_grad", 0) > 0
            agent.guarded("prepare_grads", agent.steps.gradients_ready, optimizer.param_groups,
                          clips)
        return result

    return prepared


def _wrapped_step(step: Any, agent: Any) -> Any:
    @functools.wraps(step)
    def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with agent.steps.outer_step(optimizer, updates_all=True) as outer:
            result = step(optimizer, *args, **kwargs)
            if isinstance(result, tuple) and len(result) > 1:
                outer.norm = result[1]
        return result

    return stepped
