# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself: wrappers around a model, gradient clipping, loss scaling, DDP.

torch.nn.utils.clip_grad_norm_ changes gradients before any optimizer hook can see them, so the
clipping functions are wrapped where they are defined, before the program can import them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Dict, List, Optional, Tuple

# Attribute names that only wrappers use, whatever their class.
_WRAPPER_KEYS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module",
                 "_forward_module"}
# "module" is a common name in models, too: it is a wrapper's only in classes of these names.
_WRAPPER_CLASSES = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
                    "TorchFullyShardedDataParallel", "Float16Module", "DeepSpeedEngine",
                    "MegatronFSDP"}


def is_wrapped(parent: Any, key: str, at_top: bool) -> bool:
    """Whether `parent` is only a shell around its child `key`: the child then has its name.

    Around the whole model a lone child called "module" is enough: unknown wrappers are met there.
    """
    if key in _WRAPPER_KEYS:
        return True
    if key != "module":
        return False
    if any(kind.__name__ in _WRAPPER_CLASSES for kind in type(parent).__mro__):
        return True
    return at_top and len(parent._modules) == 1 and not parent._parameters


def is_compiled(module: Any) -> bool:
    """A region whose inside hooks cannot see."""
    return (type(module).__name__ == "OptimizedModule"
            or getattr(module, "_compiled_call_impl", None) is not None)


def is_generated(module: Any) -> bool:
    """A graph that a compiler made of other modules: no part of any program's model."""
    return any(kind.__name__ == "GraphModule" and kind.__module__.startswith("torch.fx")
               for kind in type(module).__mro__)


def class_of(module: Any) -> Any:
    """The program's own class: composable wrappers replace it by a class derived from theirs."""
    kind = type(module)
    mixed = kind.__bases__[0].__name__ in ("FSDPModule", "ReplicateModule")
    return kind.__bases__[1] if mixed and len(kind.__bases__) > 1 else kind


def data_parallel_axis(module: Any, torch: Any) -> Optional[Tuple[str, int, int]]:
    """(dp, size, coordinate) when the module is a DistributedDataParallel."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is None or not isinstance(module, parallel.DistributedDataParallel):
        return None
    group = module.process_group
    return "dp", group.size(), torch.distributed.get_rank(group)


def data_parallel_ranks(module: Any, torch: Any) -> List[List[int]]:
    """Of a DistributedDataParallel the ranks of its group."""
    if data_parallel_axis(module, torch) is None:
        return []
    return [torch.distributed.get_process_group_ranks(module.process_group)]


def watch(agent: Any, after_import: Any, torch: Any) -> None:
    _wrap_clipping(agent, torch)
    after_import("torch.amp.grad_scaler", lambda module: _wrap_scaler(agent, module))
    after_import("torch.distributed.pipelining.stage", lambda module: _wrap_rehearsal(agent, module))


def _wrap_rehearsal(agent: Any, module: Any) -> None:
    """Pipeline stages run their module once more beforehand, to learn the shapes that it returns."""
    for kind in [value for value in vars(module).values() if isinstance(value, type)]:
        for name in ("_shape_inference", "_forward_metadata_inference",
                     "_backward_metadata_inference"):
            if name in vars(kind):
                setattr(kind, name, _paused(vars(kind)[name], agent))


def _paused(original: Any, agent: Any) -> Any:
    @functools.wraps(original)
    def rehearsal(*args: Any, **kwargs: Any) -> Any:
        before, agent.paused = agent.paused, True
        try:
            return original(*args, **kwargs)
        finally:
            agent.paused = before

    return rehearsal


def _parameters(args: Tuple[Any, ...], kwargs: Dict[str, Any],
                torch: Any) -> Tuple[List[Any], Tuple[Any, ...], Dict[str, Any]]:
    """The parameters as a list, and the arguments with that list: iterators are read once."""
    given = args[0] if args else kwargs["parameters"]
    parameters = [given] if isinstance(given, torch.Tensor) else list(given)
    if args:
        return parameters, (parameters,) + args[1:], kwargs
    return parameters, args, {**kwargs, "parameters": parameters}


def _wrap_clipping(agent: Any, torch: Any) -> None:
    places = [torch.nn.utils, torch.nn.utils.clip_grad]
    for names in (("clip_grad_norm_",), ("clip_grad_value_",),
                  ("clip_grads_with_norm_", "_clip_grads_with_norm_")):
        original = next((vars(place)[name] for place in places for name in names
                         if name in vars(place)), None)
        if original is None:
            continue
        wrapped = _clipping(original, names[0], agent, torch)
        for place in places:
            for name in names:
                if vars(place).get(name) is original:
                    setattr(place, name, wrapped)


def _clipping(original: Any, name: str, agent: Any, torch: Any) -> Any:
    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        steps = agent.steps
        if not steps.recording or steps.clipping or not (args or "parameters" in kwargs):
            return original(*args, **kwargs)
        parameters, args, kwargs = _parameters(args, kwargs, torch)
        agent.guarded(name, steps.before_clipping, parameters)
        steps.clipping = True
        try:
            result = norm = original(*args, **kwargs)
        finally:
            steps.clipping = False
        if name == "clip_grads_with_norm_":
            norm = args[2] if len(args) > 2 else kwargs.get("total_norm")
        agent.guarded(name, steps.after_clipping, norm)
        return result

    return clip


def _wrap_scaler(agent: Any, module: Any) -> None:
    """A loss scaler may skip the optimizer's step; the iteration is over all the same."""
    step = module.GradScaler.step

    @functools.wraps(step)
    def stepped(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with agent.steps.outer_step(optimizer):
            return step(scaler, optimizer, *args, **kwargs)

    module.GradScaler.step = stepped
