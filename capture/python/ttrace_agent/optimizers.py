# SPDX-License-Identifier: Apache-2.0
"""torch's optimizers, as the agent sees them: which tensors they own, and steps with a closure.

A closure computes the gradients inside of the step (PyTorch Lightning always steps like that), so
what is to be read or set before the step must wait for it.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Dict, Optional, Tuple


class Optimizers:
    def __init__(self) -> None:
        self._owned: Dict[int, Any] = {}  # by id: weak reference

    def install(self, module: Any, before: Callable[[Any], None],
                after: Callable[[Any], None]) -> None:
        """`module`: torch.optim.optimizer."""
        self._watch_groups(module.Optimizer)
        module.register_optimizer_step_pre_hook(
            lambda optimizer, args, kwargs: _called_before(optimizer, args, kwargs, before))
        module.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after(optimizer))

    def owns(self, tensor: Any) -> bool:
        reference = self._owned.get(id(tensor))
        return reference is not None and reference() is tensor

    def _watch_groups(self, kind: Any) -> None:
        add = kind.add_param_group

        @functools.wraps(add)
        def added(optimizer: Any, group: Any) -> Any:
            result = add(optimizer, group)
            for tensor in optimizer.param_groups[-1]["params"]:
                self._owned[id(tensor)] = weakref.ref(tensor)
            return result

        kind.add_param_group = added


def _called_before(optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any],
                   before: Callable[[Any], None]) -> Optional[Tuple[Any, Any]]:
    """Calls before(optimizer) when the gradients are there. The arguments to step with instead."""
    positional = len(args) > 1 and callable(args[1])  # args[0] is the optimizer
    closure = args[1] if positional else kwargs.get("closure")
    if not callable(closure):
        before(optimizer)
        return None
    called = []

    @functools.wraps(closure)
    def then(*own: Any, **keywords: Any) -> Any:
        result = closure(*own, **keywords)
        if not called:  # a line search calls it again, from other parameters
            called.append(True)
            before(optimizer)
        return result

    if positional:
        return (args[0], then, *args[2:]), kwargs
    return args, {**kwargs, "closure": then}
