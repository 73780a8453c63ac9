# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO-1 and ZeRO-2: an optimizer steps this rank's part of all parameters, joined.

A parameter of which this rank has a part says so in `_hp_mapping`: which elements of itself, and
where in the joined tensor they are; DeepSpeed's own checkpoints rely on it. The optimizer around
the torch one clips before the step and brings parameters up to date after it, so it is wrapped when
its module is imported.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Iterator, List, Optional, Tuple

from .masters import Master, Masters

_optimizers: "weakref.WeakSet[Any]" = weakref.WeakSet()
# Names of the joined tensors and of the parameters in them, group by group, in the two optimizers.
_GROUPS = (("single_partition_of_fp32_groups", "bit16_groups"),
           ("fp32_groups_flat_partition", "bf16_groups"))


def watch(agent: Any, after_import: Any) -> None:
    after_import("deepspeed.runtime.zero.stage_1_and_2",
                 lambda module: _wrap(module.DeepSpeedZeroOptimizer, agent))
    after_import("deepspeed.runtime.bf16_optimizer",
                 lambda module: _wrap(module.BF16_Optimizer, agent))


def _groups(optimizer: Any) -> Iterator[Tuple[Any, List[Any]]]:
    for joined, parameters in _GROUPS:
        if hasattr(optimizer, joined):
            yield from zip(getattr(optimizer, joined), getattr(optimizer, parameters))


def masters() -> Masters:
    found: Masters = {}
    for optimizer in list(_optimizers):
        for joined, parameters in _groups(optimizer):
            pieces = [_piece(parameter) for parameter in parameters
                      if getattr(parameter, "_hp_mapping", None) is not None]
            found[id(joined)] = (joined, pieces)
    return found


def _piece(parameter: Any) -> Master:
    own = parameter._hp_mapping.lp_fragment_address
    joined = parameter._hp_mapping.hp_fragment_address
    flat = {"shape": list(parameter.shape), "start": int(own.start), "count": int(own.numel)}
    return Master(parameter, flat, (int(joined.start), int(joined.numel)), "deepspeed")


def reload_masters() -> None:
    """The parameters were set from outside: the joined copies must follow."""
    for optimizer in list(_optimizers):
        optimizer.refresh_fp32_params()


def data_parallel_axis(module: Any, torch: Any) -> Optional[Tuple[str, int, int]]:
    """(dp, size, coordinate) when the module is DeepSpeed's engine."""
    engine = sys.modules.get("deepspeed.runtime.engine")
    if engine is None or not isinstance(module, engine.DeepSpeedEngine):
        return None
    group = getattr(module, "data_parallel_group", None)
    if group is None:
        return None
    return "dp", torch.distributed.get_world_size(group), torch.distributed.get_rank(group)


def _wrap(kind: Any, agent: Any) -> None:
    initialise, step = kind.__init__, kind.step

    @functools.wraps(initialise)
    def remembered(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        initialise(optimizer, *args, **kwargs)
        _optimizers.add(optimizer)

    @functools.wraps(step)
    def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with agent.steps.outer_step(optimizer, updates_all=True) as outer:
            if hasattr(optimizer, "fp32_groups_gradient_flat_partition"):
                agent.guarded("step", _gradients_ready, optimizer, agent)
            readable = _is_readable(optimizer)  # the step may change the scale
            result = step(optimizer, *args, **kwargs)
            if optimizer.clip_grad > 0.0 and readable:  # else no gradients to tell its limit by
                outer.norm = getattr(optimizer, "_global_grad_norm", None)
        return result

    kind.__init__, kind.step = remembered, stepped
    if hasattr(kind, "unscale_and_clip_grads"):
        kind.unscale_and_clip_grads = _wrapped_clipping(kind.unscale_and_clip_grads, agent)


def _is_readable(optimizer: Any) -> bool:
    """Gradients before clipping may still be scaled like the loss: no others are like them."""
    return getattr(optimizer, "loss_scale", 1.0) == 1.0


def _gradients_ready(optimizer: Any, agent: Any) -> None:
    """BF16_Optimizer gives gradients to the joined tensors once it has clipped them."""
    joined = []
    for tensor, gradient in zip(optimizer.fp32_groups_flat_partition,
                                optimizer.fp32_groups_gradient_flat_partition):
        if gradient.dtype == tensor.dtype:
            tensor.grad = gradient
            joined.append(tensor)
    agent.steps.gradients_ready([{"params": joined}], clips=optimizer.clip_grad > 0.0)


def _wrapped_clipping(clip: Any, agent: Any) -> Any:
    @functools.wraps(clip)
    def clipped(optimizer: Any, grad_groups_flat: Any, *args: Any, **kwargs: Any) -> Any:
        if optimizer.clip_grad > 0.0:
            agent.guarded("unscale_and_clip_grads", _before_clipping, optimizer, grad_groups_flat,
                          agent)
        return clip(optimizer, grad_groups_flat, *args, **kwargs)

    return clipped


def _before_clipping(optimizer: Any, gradients: List[Any], agent: Any) -> None:
    held = {id(gradient) for gradient in gradients}
    joined = [tensor for tensor, _ in _groups(optimizer) if id(tensor.grad) in held]
    agent.steps.gradients_ready([{"params": joined}], clips=True,
                                readable=_is_readable(optimizer))
