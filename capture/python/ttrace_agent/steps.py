# SPDX-License-Identifier: Apache-2.0
"""Iterations, and what is read around the optimizer's step.

An iteration begins with the first training forward pass after a step and ends with the next step.
Optimizers that step one after another, without a forward pass in between, end one iteration
together, so recording goes on until that forward pass. Parameters are recorded before it, gradients
before clipping and before the step, and parameters, masters and optimizer states after it.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import abi, adapters, hyperparameters
from .adapters.dtensor import PendingNorm, is_dtensor
from .names import ROOT, Root
from .optimizers import Optimizers
from .targets import Target, Targets
from .updates import UpdatesByHand

REDUCED, CLIPPED = "reduced", "clipped"


class OuterStep:
    """A step() around torch optimizers' own; only its end is the end of an iteration."""

    def __init__(self, steps: "Steps", optimizer: Any, updates_all: bool):
        self._steps = steps
        self.optimizer = optimizer
        self.updates_all = updates_all  # copies masters to all parameters when it is done
        self.norm: Any = None  # the gradient norm it reports

    def __enter__(self) -> "OuterStep":
        self._steps.depth += 1
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._steps.depth -= 1
        if kind is None and self._steps.depth == 0:
            self._steps.outer_done(self)


class Steps:
    def __init__(self, agent: Any, torch: Any):
        self._agent = agent
        self._torch = torch
        self._targets = Targets(agent)
        self._norm = PendingNorm()
        self._by_hand = UpdatesByHand(torch)
        self._optimizers = Optimizers()
        self.iteration = -1
        self.running = False  # between the first forward pass and the step
        self.recording = False  # and this iteration is to be captured
        self.depth = 0  # of outer steps
        self._unfinished = False  # its segment is open
        self._before_clipping: Set[str] = set()
        self._written: Set[Tuple[str, str, str, int]] = set()
        self._stepped: Dict[int, int] = {}  # steps of each optimizer in this iteration
        self._updates: List[Dict[str, Any]] = []  # what they were told to do
        self._no_gradient: Set[str] = set()
        self.clipping = False  # inside a function that clips: it may call others that do
        self._norms = 0
        self._solo: Any = None  # the optimizer of the latest iterations, as a weak reference
        self._streak = 0  # their number
        self._asleep = False

    def install(self) -> None:
        guarded = self._agent.guarded
        self._optimizers.install(
            importlib.import_module("torch.optim.optimizer"),
            lambda stepped: guarded("before step", self._before_step, stepped),
            lambda stepped: guarded("after step", self._after_step, stepped))

    # ---- boundaries ----

    def before_forward(self, root: Root) -> None:
        """A training forward pass of a model begins."""
        if self.running and self._by_hand.seen():
            self.mark()
        if self.running:
            self._by_hand.watch(root.ref())
            return
        self.finish()
        self._by_hand.forget()
        self._by_hand.watch(root.ref())
        self.iteration += 1
        self.running = True
        self._before_clipping = set()
        self._written = set()
        self._stepped = {}
        self._updates = []
        self._no_gradient = set()
        self._norms = 0
        self.recording = (self._agent.options.wants_iteration(self.iteration)
                          and self._agent.begin_iteration(self.iteration))
        self._unfinished = self.recording
        self._agent.update_awake()

    def mark(self) -> None:
        """The iteration is over, as the program says or its parameters show."""
        if self.running and self.recording:
            for root in self._agent.names.roots:
                self._record_left_gradients(root)
                self._record_updated(root)
        self._boundary(self)

    def end(self) -> None:
        """The program is."""
        if self.running and self._by_hand.seen():
            self.mark()
        error = getattr(sys, "last_value", None)
        if error is not None and self._unfinished:
            where = f"iteration {self.iteration}"
            self._agent.note("exception", where if self.running else f"after {where}", repr(error))
        self.finish()

    def outer_step(self, optimizer: Any, updates_all: bool = False) -> OuterStep:
        return OuterStep(self, optimizer, updates_all)

    def outer_done(self, outer: OuterStep) -> None:
        self._agent.guarded("after step", self._outer_done, outer)

    def _outer_done(self, outer: OuterStep) -> None:
        if self.recording:
            if outer.updates_all:
                for root in self._agent.names.roots:
                    self._record_updated(root)
            if isinstance(outer.norm, (float, self._torch.Tensor)):
                self._record_norm(outer.norm)
        self._boundary(outer.optimizer)

    def _boundary(self, optimizer: Any) -> None:
        if optimizer is not self:
            self._by_hand.rule_out()
        self._agent.hooks.between_calls()
        if self._asleep:
            self._passed_asleep(optimizer)
        elif self.running:
            self.running = False
            same = self._solo is not None and self._solo() is optimizer
            self._streak = self._streak + 1 if same else 1
            self._solo = weakref.ref(optimizer)
            if self._may_sleep():
                self._asleep = True
                self.recording = False
                self._agent.hooks.remove()
        elif self._solo is None or self._solo() is not optimizer:
            self._streak = 0  # several optimizers: forward passes must be seen to count
        self._agent.update_awake()

    def _may_sleep(self) -> bool:
        """The next iteration costs nothing if module hooks are gone and steps alone are counted.

        That needs one optimizer, known to step once an iteration. Compiled code is guarded by the
        hooks it was compiled with.
        """
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and bool(dynamo.counters.get("frames"))
        return (self._streak >= 2 and not compiled
                and not self._agent.options.wants_iteration(self.iteration + 1))

    def _passed_asleep(self, optimizer: Any) -> None:
        self.finish()
        if self._solo() is not optimizer:
            self._streak = 0
            self._wake()
            return
        self.iteration += 1
        if self._agent.options.wants_iteration(self.iteration + 1):
            self._wake()

    def _wake(self) -> None:
        self._asleep = False
        self._agent.hooks.install()

    def finish(self) -> None:
        """Closes the segment and brings the tables up to date."""
        if self._unfinished:
            for root in self._agent.names.roots:
                self._agent.guarded("after step", self._record_unowned, root)
            self._unfinished = False
            if self._updates:
                self._agent.tell({"updates": {str(self.iteration): self._updates}})
            if self._norm.forget():
                self._agent.note("not recorded", "grad/@root/norm",
                                 "its value was a DTensor that the program did not make whole")
            self._agent.end_iteration()
        self.recording = False

    # ---- what is recorded ----

    def _write(self, phase: str, name: str, slot: str, tensor: Any, call: int = 0,
               **details: Any) -> None:
        """Once an iteration and step: steps may be nested."""
        replay = self._agent.replay
        if phase == "step" and replay is not None and not replay.knows_state():
            self._agent.note("not recorded", "step", "the pack does not have the iteration before, "
                             "so the states that this step starts from are not known")
            return
        if tensor is not None and (phase, name, slot, call) not in self._written:
            self._written.add((phase, name, slot, call))
            self._agent.recorder.write(phase, name, slot, tensor, call=call, link=False, **details)

    def record_values(self, root: Root) -> None:
        """All parameters, before the first forward pass of the iteration."""
        if root.values_recorded == self.iteration or not self.recording:
            return
        self._agent.names.refresh(root, self.iteration)
        if root.lazy:
            return
        root.values_recorded = self.iteration
        self._agent.guarded("tables", self._agent.describe, root)
        replay = self._agent.replay
        # What a layout draws for itself is nothing to compare, and what became of it unseen.
        drawn = replay is not None and replay.is_cut and self.iteration == 0
        if drawn or (replay is not None and not replay.knows_state()):
            replay.set_parameters(root)
        module = root.ref()
        if module is not None and self.iteration > 0 and adapters.gathers_late(module):
            self._agent.note("not recorded", "param", "parameters are gathered while the forward "
                             "pass runs; their value before it is that after the former step")
            return
        for info in root.parameters:
            parameter = info.ref()
            if parameter is not None:
                flags = abi.TRAINABLE if parameter.requires_grad else 0
                self._write("param", info.name, "value", info.of(parameter), flags=flags,
                            raw_name=info.raw_name, layout=info.layout)
        for stepped, target in self._targets.copies():
            self._write("param", target.name, "master", target.of(stepped),
                        raw_name=target.raw_name, layout=target.layout)
        if replay is not None:
            replay.set_parameters(root)

    def _record_updated(self, root: Root) -> None:
        """Parameters after the step."""
        module = root.ref()
        if module is None or adapters.gathers_late(module):
            return
        for info in root.parameters:
            parameter = info.ref()
            if parameter is not None and parameter.requires_grad:
                self._write("step", info.name, "param", info.of(parameter),
                            raw_name=info.raw_name, layout=info.layout,
                            flags=self._step_flags(info.name))

    def _record_unowned(self, root: Root) -> None:
        """Parameters that no optimizer of this process updates, as the next iteration finds them.

        Other ranks may have stepped them and sent the result, or should have.
        """
        module = root.ref()
        if module is None or not self._stepped or adapters.gathers_late(module):
            return
        for info in root.parameters:
            parameter = info.ref()
            if (parameter is not None and parameter.requires_grad
                    and not self._optimizers.owns(parameter)):
                self._write("step", info.name, "param", info.of(parameter),
                            raw_name=info.raw_name, layout=info.layout,
                            flags=self._step_flags(info.name))

    def _step_flags(self, name: str) -> int:
        return abi.TRAINABLE | (abi.NO_GRADIENT if name in self._no_gradient else 0)

    def _record_gradient(self, target: Target, stepped: Any, slot: str, call: int = 0) -> None:
        gradient = stepped.grad
        if gradient is None:
            gradient = getattr(stepped, "decoupled_grad", None)
        if gradient is None:
            if stepped.numel() > 0:  # else other ranks have all of it
                self._no_gradient.add(target.name)
            return
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        gradient = target.of(gradient)
        self._write("grad", target.name, slot, gradient, call, raw_name=target.raw_name,
                    layout=target.layout)
        if self._agent.replay is not None:
            self._agent.replay.set_gradient(target, slot, call, gradient)

    def _record_left_gradients(self, root: Root) -> None:
        """What a program that updates by hand has not cleared by now."""
        for info in root.parameters:
            parameter = info.ref()
            if parameter is None or not parameter.requires_grad:
                continue
            targets = [each for each in self._targets.find(parameter) if each.name == info.name]
            if targets and parameter.grad is not None:
                self._record_gradient(targets[0], parameter, self._slot(targets[0]))
            elif ("grad", info.name, REDUCED, 0) not in self._written:
                self._agent.note("not recorded", "grad",
                                 "no optimizer makes the update and the gradient was cleared after "
                                 "it; call ttrace_agent.mark_iteration() between the two")

    def _record_norm(self, norm: Any) -> None:
        if is_dtensor(norm):
            if not all(placement.is_replicate() for placement in norm.placements):
                self._norm.expect(norm, self._norm_arrived)
                return
        elif not isinstance(norm, self._torch.Tensor):
            norm = self._torch.tensor(norm, dtype=self._torch.float64, device="cpu")
        self._agent.recorder.write("grad", ROOT, "norm", norm, call=self._norms, link=False)
        self._norms += 1  # a program may clip several models

    def _norm_arrived(self, norm: Any) -> None:
        if self._unfinished:
            self._agent.guarded("norm", self._record_norm, norm)

    # ---- clipping ----

    def before_clipping(self, parameters: Iterable[Any]) -> None:
        """Gradients as they were reduced; after this they are scaled in place."""
        for parameter in parameters:
            for target in self._targets.find(parameter):
                if parameter.grad is not None:
                    self._before_clipping.add(target.name)
                    self._record_gradient(target, parameter, REDUCED)

    def after_clipping(self, norm: Any) -> None:
        if isinstance(norm, self._torch.Tensor):
            self._record_norm(norm)

    def gradients_ready(self, groups: Any, clips: bool, readable: bool = True) -> None:
        """An outer step has finished its gradients and has not clipped them."""
        if self.recording:
            for stepped, target in self._targets.of_groups(groups):
                if readable:
                    self._record_gradient(target, stepped, REDUCED)
                if clips:
                    self._before_clipping.add(target.name)

    # ---- the step of a torch optimizer ----

    def _before_step(self, optimizer: Any) -> None:
        if not self.recording:
            return
        call = self._stepped.get(id(optimizer), 0)
        for stepped, target in self._targets.of_groups(optimizer.param_groups):
            self._record_gradient(target, stepped, self._slot(target), call)
            if self._agent.replay is not None and call == 0:
                self._set_states(optimizer, stepped, target)
        if call == 0:
            self._updates += hyperparameters.describe(optimizer, self._targets, self._torch)

    def _set_states(self, optimizer: Any, stepped: Any, target: Target) -> None:
        if target.is_copy:
            self._agent.replay.set_state(target, "master", target.of(stepped))
        for slot, value in (optimizer.state.get(stepped) or {}).items():
            if slot != "step" and isinstance(value, self._torch.Tensor):
                alike = tuple(value.shape) == tuple(stepped.shape)
                self._agent.replay.set_state(target, slot, target.of(value) if alike else value)

    def _slot(self, target: Target) -> str:
        return CLIPPED if target.name in self._before_clipping else REDUCED

    def _after_step(self, optimizer: Any) -> None:
        if self.recording:
            call = self._stepped.get(id(optimizer), 0)
            self._stepped[id(optimizer)] = call + 1
            for stepped, target in self._targets.of_groups(optimizer.param_groups):
                self._record_stepped(optimizer, stepped, target, call)
        if self.depth == 0:
            self._boundary(optimizer)

    def _record_stepped(self, optimizer: Any, stepped: Any, target: Target, call: int) -> None:
        """A second step of an optimizer without a forward pass in between is a second call."""
        details = {"raw_name": target.raw_name, "layout": target.layout, "call": call}
        if stepped is target.parameter:
            self._write("step", target.name, "param", target.of(stepped),
                        flags=self._step_flags(target.name), **details)
        elif target.is_copy:
            self._write("step", target.name, "master", target.of(stepped), **details)
        state: Optional[Any] = optimizer.state.get(stepped)
        for slot, value in (state or {}).items():
            if slot == "step" or not isinstance(value, self._torch.Tensor):
                continue
            if tuple(value.shape) == tuple(stepped.shape):
                self._write("step", target.name, slot, target.of(value), **details)
            else:  # a factored state has a shape of its own
                self._write("step", target.name, slot, value, raw_name=target.raw_name, call=call)
