# SPDX-License-Identifier: Apache-2.0
"""Puts other values in the place of those that modules compute, and of their gradients.

Where these come from is the business of a source (replay.py, perturb.py). What is computed is
recorded first. A module's output is replaced by a fresh tensor: an input that a node returns as it
is would count as a view, and programs work on outputs in place. What enters a module without being
another module's output ("glue") may have further consumers: such a tensor is overwritten where it
is, unless autograd needs the value that was computed. Gradients are replaced by the hook that
records them, on the tensor that was computed: there all consumers' gradients have been added up, in
the order in which they always are. A tensor that several modules return in turn is one tensor here,
too: its gradient is the sum over whoever uses it, wherever they got it.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from .calls import FORWARD, Frame
from .gradients import BACKWARD, Label


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
        self._handing_on = _handing_on(torch)

    def output(self, frame: Frame, slot: str, tensor: Any, sequence: int) -> Optional[Any]:
        """The tensor to go on with instead; None: this one."""
        if isinstance(tensor, self._torch.nn.Parameter):  # a bias handed out beside the output
            return None
        gradients = self._agent.gradients
        value = self._value(frame, slot, tensor)
        if gradients.stands_in(tensor):
            # Handed on as another module's output already. The other run may have made something
            # of it here (a sum over ranks), or be handing on the same tensor, too.
            if value is None or self._torch.equal(value(), tensor):
                value = None
            else:
                gradients.forget(tensor)
        self._agent.hooks.watch(frame, slot, tensor, self._gradient)
        if value is None:
            return None
        floating = tensor.is_floating_point()
        other = self._handing_on.apply(tensor, value) if floating else value()
        if floating:
            gradients.stand_in(other, tensor)
        if sequence >= 0:
            self._agent.recorder.remember(other, sequence)
        return other

    def glue(self, frame: Frame, slot: str, tensor: Any, sequence: int) -> Optional[Any]:
        """The input to pass on instead; None: this one, which may have been overwritten."""
        if _saved_by_its_producer(tensor):
            self._agent.hooks.watch(frame, slot, tensor)
            return None
        if not self._may_be_written(tensor):
            return self.output(frame, slot, tensor, sequence)
        self._agent.hooks.watch(frame, slot, tensor, self._gradient)
        value = self._value(frame, slot, tensor)
        if value is not None:
            # Other consumers have saved this very tensor, so its version must not grow.
            with self._torch.no_grad(), (
                    self._torch.autograd._unsafe_preserve_version_counter(tensor)):
                tensor.copy_(value())
        return None

    def _value(self, frame: Frame, slot: str, tensor: Any) -> Any:
        key = TapKey(FORWARD, frame.info.name, frame.context.microbatch, frame.call, slot)
        return self._source.value(key, tensor)

    def _gradient(self, labels: List[Label], gradient: Any) -> Optional[Any]:
        for info, slot, microbatch, call in labels:
            value = self._source.value(TapKey(BACKWARD, info.name, microbatch, call, slot), gradient)
            if value is not None:
                return value()
        return None

    def _may_be_written(self, tensor: Any) -> bool:
        """A leaf is the program's own data; elements of an expanded tensor share their memory."""
        return (tensor.requires_grad and not tensor.is_leaf and self._torch.is_grad_enabled()
                and tensor.is_floating_point()
                and not any(size > 1 and stride == 0
                            for size, stride in zip(tensor.shape, tensor.stride())))


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


def _handing_on(torch: Any) -> Any:
    """A node without arithmetic; `value` is a function, so that it is no input of the node."""

    class HandingOn(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, computed: Any, value: Any) -> Any:
            return value()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient, None

    return HandingOn
