# SPDX-License-Identifier: Apache-2.0
"""Puts other values in the place of those that modules compute, and of their gradients.

An autograd node without arithmetic hands a value on in the forward pass and a gradient on in the
backward pass; where these come from is the business of a source (replay.py, perturb.py). What is
computed is recorded first. A module's output is replaced by a fresh tensor: an input that a node
returns as it is would count as a view, and programs work on outputs in place. What enters a module
without being another module's output ("glue") may have further consumers, whose gradients must be
summed up in the order in which they always are: such a tensor is overwritten in place, unless
autograd needs the value that was computed.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from .calls import FORWARD, Frame
from .gradients import BACKWARD


class TapKey(NamedTuple):
    """A tensor between modules, as the agent numbers it."""

    phase: str
    module: str
    microbatch: int
    call: int
    slot: str


class Overwriter:
    def __init__(self, agent: Any, torch: Any, source: Any):
        self._agent = agent
        self._torch = torch
        self._source = source
        self._apart, self._in_place = _nodes(torch)

    def output(self, frame: Frame, slot: str, tensor: Any, sequence: int) -> Optional[Any]:
        """The tensor to return instead; None: this one."""
        return self._overwrite(frame, slot, tensor, sequence, self._replace)

    def glue(self, frame: Frame, slot: str, tensor: Any, sequence: int) -> Optional[Any]:
        """The input to pass on instead; None: this one, which may have been overwritten."""
        way = self._write if self._may_be_written(tensor) else self._replace
        if _saved_by_its_producer(tensor):
            way = self._watch
        return self._overwrite(frame, slot, tensor, sequence, way)

    # ---- the ways of doing it ----

    def _overwrite(self, frame: Frame, slot: str, tensor: Any, sequence: int,
                   way: Callable[..., Optional[Any]]) -> Optional[Any]:
        if isinstance(tensor, self._torch.nn.Parameter):  # a bias handed out beside the output
            return None
        key = TapKey(FORWARD, frame.info.name, frame.context.microbatch, frame.call, slot)
        value = self._source.value(key, tensor)
        if value is None:
            way = self._watch
        replaced = way(frame, key, tensor, value)
        if replaced is not None and sequence >= 0:
            self._agent.recorder.remember(replaced, sequence)
        return replaced

    def _watch(self, frame: Frame, key: TapKey, tensor: Any, value: Any) -> None:
        self._agent.hooks.watch(frame, key.slot, tensor)

    def _replace(self, frame: Frame, key: TapKey, tensor: Any, value: Any) -> Any:
        if not tensor.is_floating_point():
            return value()
        return self._apart.apply(tensor, value, self._on_gradient(frame, key))

    def _write(self, frame: Frame, key: TapKey, tensor: Any, value: Any) -> Any:
        """Other consumers have saved this very tensor, so its version must not grow."""
        with self._torch.autograd._unsafe_preserve_version_counter(tensor):
            return self._in_place.apply(tensor, value, self._on_gradient(frame, key))

    def _may_be_written(self, tensor: Any) -> bool:
        return (tensor.requires_grad and not tensor.is_leaf and not tensor._is_view()
                and self._torch.is_grad_enabled() and tensor.is_floating_point())

    def _on_gradient(self, frame: Frame, key: TapKey) -> Callable[[Any], Any]:
        info, agent = frame.info, self._agent
        key = key._replace(phase=BACKWARD, slot=f"grad_{key.slot}")
        iteration = agent.steps.iteration

        def on_gradient(gradient: Any) -> Any:
            if gradient is None or not agent.steps.recording or (
                    agent.steps.iteration != iteration):
                return gradient
            try:
                return self._gradient(info, key, gradient)
            except Exception as error:
                agent.failed(info.name, error)
                return gradient

        return on_gradient

    def _gradient(self, info: Any, key: TapKey, gradient: Any) -> Any:
        value = self._source.value(key, gradient)
        if value is None and key.slot.startswith("grad_input"):
            return gradient  # nothing to compare it with: hooks do not see all that a node sees
        replaced = gradient if value is None else value()
        sequence = self._agent.recorder.write(
            BACKWARD, info.name, key.slot, gradient, microbatch=key.microbatch, call=key.call,
            raw_name=info.raw_name)
        if replaced is not gradient and sequence >= 0:
            self._agent.recorder.remember(replaced, sequence)
        return replaced


def _saved_by_its_producer(tensor: Any) -> bool:
    """Whether the backward of what computed `tensor` needs its value: exp, tanh, softmax, ...

    Names of what is saved are looked at, not the tensors: reading one under a checkpoint would
    start the second forward pass. A node of a program's own may have saved anything.
    """
    node = tensor.grad_fn
    if node is None:
        return False
    if hasattr(node, "saved_for_forward"):  # a torch.autograd.Function
        return True
    return any(name.startswith(("_raw_saved_result", "_raw_saved_output")) for name in dir(node))


def _nodes(torch: Any) -> Any:
    """Two autograd functions; `value` is a function, so that it is no input of the node."""

    class Node(torch.autograd.Function):
        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return context.on_gradient(gradient), None, None

    class Apart(Node):
        @staticmethod
        def forward(context: Any, computed: Any, value: Any, on_gradient: Any) -> Any:
            context.on_gradient = on_gradient
            return value()

    class InPlace(Node):
        @staticmethod
        def forward(context: Any, computed: Any, value: Any, on_gradient: Any) -> Any:
            context.on_gradient = on_gradient
            computed.copy_(value())
            context.mark_dirty(computed)
            return computed

    return Apart, InPlace
