# SPDX-License-Identifier: Apache-2.0
"""Gradients of module outputs, by hooks on the tensors themselves.

A tensor hook sees the sum over all consumers and disturbs nothing: in-place operations, views and
freed outputs keep working, which full backward hooks break. The hook knows which call it belongs to
and holds neither the tensor nor the module.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import abi
from .names import ModuleInfo

BACKWARD = "backward"


# Where a tensor was returned (module, slot, micro-batch, call); it may be several modules' output.
Label = Tuple[ModuleInfo, str, int, int]

# The gradient to go on with instead of the one that was computed; None: that one.
Replacement = Callable[[List[Label], Any], Optional[Any]]


class GradientHook:
    __slots__ = ("_agent", "_iteration", "labels", "leaf_handle", "replacement")

    def __init__(self, agent: Any, iteration: int):
        self._agent = agent
        self._iteration = iteration
        self.labels: List[Label] = []
        self.leaf_handle: Any = None
        self.replacement: Optional[Replacement] = None

    def __call__(self, gradient: Any) -> Optional[Any]:
        if self.leaf_handle is not None:  # a leaf may live on and take part in later iterations
            self.leaf_handle.remove()
        agent = self._agent
        if not agent.steps.recording or agent.steps.iteration != self._iteration:
            return None
        if agent.collectives is not None:
            info, _, microbatch, _ = self.labels[0]
            agent.collectives.gradient_arrived(info.name, microbatch)
        try:
            sequence = self._record(gradient)
            # Once, and never one that will be differentiated itself: another one has no graph, and
            # what comes of it arrives here a second time.
            replacement, self.replacement = self.replacement, None
            if replacement is None or gradient.requires_grad:
                return None
            other = replacement(self.labels, gradient)
            if other is not None and sequence >= 0:
                agent.recorder.remember(other, sequence)
            return other
        except Exception as error:
            agent.failed(self.labels[0][0].name, error)
            return None

    def _record(self, gradient: Any) -> int:
        sequence = abi.NOT_ALIAS
        for info, slot, microbatch, call in self.labels:
            written = self._agent.recorder.write(
                BACKWARD, info.name, slot, gradient, microbatch=microbatch, call=call,
                raw_name=info.raw_name, alias_of=sequence)
            sequence = sequence if sequence >= 0 else written
        return sequence


class Gradients:
    def __init__(self, agent: Any, torch: Any):
        self._agent = agent
        self._parameter = torch.nn.Parameter
        self._watched: Dict[int, Tuple[Any, int, GradientHook]] = {}
        self._stand_ins: Set[int] = set()

    def begin_iteration(self) -> None:
        self._watched = {}
        self._stand_ins = set()

    def watch(self, tensor: Any, info: ModuleInfo, slot: str, microbatch: int, call: int,
              replacement: Optional[Replacement] = None) -> None:
        """Records the gradient of `tensor`, an output that requires one, when it arrives."""
        wanted, _ = self._agent.recorder.plan(BACKWARD, info.name, slot)
        if not wanted or isinstance(tensor, self._parameter):
            return  # a hook on a parameter would fire for every later micro-batch, too
        hook = self._hook_of(tensor)
        hook.replacement = hook.replacement or replacement
        label = (info, slot, microbatch, call)
        if label not in hook.labels:  # a recompute may return the very tensor of the first pass
            hook.labels.append(label)

    # A tensor that is handed on instead of another: gradients of both are those of the other.

    def stand_in(self, tensor: Any, computed: Any) -> None:
        known = self._watched.get(id(computed))
        if known is not None and known[0]() is computed and tensor.requires_grad:
            self._watched[id(tensor)] = (weakref.ref(tensor), tensor._version, known[2])
            self._stand_ins.add(id(tensor))

    def stands_in(self, tensor: Any) -> bool:
        known = self._watched.get(id(tensor))
        return (id(tensor) in self._stand_ins and known is not None and known[0]() is tensor
                and known[1] == tensor._version)

    def forget(self, tensor: Any) -> None:
        self._stand_ins.discard(id(tensor))
        del self._watched[id(tensor)]

    def _hook_of(self, tensor: Any) -> GradientHook:
        """One a tensor and version: what was done in place is another value with its own hook."""
        known = self._watched.get(id(tensor))
        version = tensor._version
        if known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        hook = GradientHook(self._agent, self._agent.steps.iteration)
        handle = tensor.register_hook(hook)
        if tensor.is_leaf:
            hook.leaf_handle = handle
        self._watched[id(tensor)] = (weakref.ref(tensor), version, hook)
        return hook
