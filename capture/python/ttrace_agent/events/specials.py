# SPDX-License-Identifier: Apache-2.0
"""Calls that tell how far the training is, or after which parameters and gradients may differ.

Each has something to be done before or after it: outside of the record of the call (`step` and
`stage` already hold for it) or inside of it (what changes is part of the call). While that is done
the thread records nothing. What goes wrong in it never reaches the program.
"""

from __future__ import annotations

import sys
import time
import types
import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional

from . import wrappers
from .contents import Contents
from .models import Models
from .progress import Progress
from .sites import Sites, of_loop
from .states import IF_NEW, SURELY, States
from .stream import Stream

Act = Callable[[Any, Any, Any], Any]  # rows, arguments, keyword arguments
After = Callable[[Any, Any, Any, Any], None]  # and what the act before the call returned
ERRORS_SAID = 3
LOSS = 7  # low three bits of a row's first integer
NAN = 0x7FF8 << 48  # bits of a float


class Special(NamedTuple):
    before: Optional[Act] = None
    after: Optional[After] = None


class Specials:
    def __init__(self, torch: Any, stream: Stream, models: Models, progress: Progress,
                 states: Optional[States], contents: Contents,
                 sites: Sites, wrap_class: Callable[[type], None]):
        self._module = torch.nn.Module
        self._modes_active = torch._C._is_torch_function_mode_enabled
        self._without_modes = torch._C.DisableTorchFunction
        self._tensor = torch.Tensor
        self._gradients_enabled = wrappers.original(torch.is_grad_enabled)
        self._stream = stream
        self._models = models
        self._progress = progress
        self._states = states
        self._contents = contents
        self._sites = sites
        self._wrap_class = wrap_class
        self._roots: Dict[int, Any] = {}  # whether they have parameters
        self._errors = 0
        self.outer: Dict[str, Special] = {
            "torch.optim.optimizer.Optimizer.zero_grad": Special(self._begins),
            "torch.nn.modules.module.Module.train": Special(self._train),
            "torch.nn.modules.module.Module.eval": Special(self._eval),
        }
        self.inner: Dict[str, Special] = {
            "torch.nn.modules.module.Module.__init__": Special(self._made_module),
            "torch.nn.modules.module.Module.__setstate__": Special(self._made_module),
            "torch.optim.optimizer.Optimizer.__init__": Special(self._makes_optimizer,
                                                                self._made_optimizer),
            "torch.autograd.backward": Special(self._backward, self._after_backward),
        }
        if states is not None:
            for name in ("torch.optim.optimizer.Optimizer.zero_grad",
                         "torch.nn.modules.module.Module.zero_grad",
                         "torch.nn.utils.clip_grad.clip_grad_norm_",
                         "torch.nn.utils.clip_grad.clip_grad_value_"):
                self.inner[name] = Special(None, self._gradients_after(name))

    # ---- wrapping ----

    def wrap_outer(self, function: Any, name: str, owner: Any, recorded: bool,
                   with_contents: bool) -> Any:
        """`with_contents`: what it is given is to be told, if it is a whole model."""
        if self._is_forward(name, owner):
            return self._forward(function, self._root_with_contents if with_contents
                                 else self._root_with_site if recorded else self._root)
        if recorded and of_loop(name):
            function = self._sites.wrap(function, name)
        special = self.outer.get(name)
        return function if special is None else self._around(function, special)

    def wrap_inner(self, function: Any, name: str, owner: Any) -> Any:
        special = self.inner.get(name)
        if special is None and _is_step(name, owner):
            special = Special(self._before_step, self._after_step(name))
        if special is None and self._states is not None and _is_update(name, owner):
            special = Special(None, self._after_update(name))
        return function if special is None else self._around(function, special)

    def _is_forward(self, name: str, owner: Any) -> bool:
        return (name.endswith(".forward") and isinstance(owner, type)
                and issubclass(owner, self._module))

    def _around(self, function: Any, special: Special) -> Any:
        local, before, after, guarded = self._stream.local, *special, self._guarded

        def around(*args: Any, **kwargs: Any) -> Any:
            if local.rows is None:
                return function(*args, **kwargs)
            known = before and guarded(before, args, kwargs)
            result = function(*args, **kwargs)
            if after and local.rows is not None:
                guarded(after, args, kwargs, known)
            return result

        return wrappers.dress(around, function)

    def _forward(self, function: Any, root: Act) -> Any:
        local, guarded = self._stream.local, self._guarded

        def forward(*args: Any, **kwargs: Any) -> Any:
            if local.in_root or local.rows is None:
                return function(*args, **kwargs)
            guarded(root, args, kwargs)
            local.in_root = True
            try:
                return function(*args, **kwargs)
            finally:
                local.in_root = False

        return wrappers.dress(forward, function)

    def _guarded(self, act: Callable[..., Any], *rest: Any) -> Any:
        local = self._stream.local
        rows = local.rows
        local.rows = None
        try:
            if self._modes_active():  # the program's own: they are not to see what is asked here
                with self._without_modes():
                    return act(rows, *rest)
            return act(rows, *rest)
        except Exception as error:  # recording must never stop the program
            self._errors += 1
            if self._errors <= ERRORS_SAID:
                print(f"ttrace: some events are missing: {error!r}", file=sys.stderr)
            return None
        finally:
            local.rows = rows

    # ---- progress ----

    def _begins(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._progress.begins()

    def _train(self, rows: Any, args: Any, kwargs: Any) -> None:
        if not self._models.is_part(args[0]):
            mode = args[1] if len(args) > 1 else kwargs.get("mode", True)
            self._progress.mode(bool(mode))

    def _eval(self, rows: Any, args: Any, kwargs: Any) -> None:
        if not self._models.is_part(args[0]):
            self._progress.mode(False)

    def _root(self, rows: Any, args: Any, kwargs: Any) -> None:
        module = args[0]
        known = self._roots.get(id(module))
        if known is None or known[0]() is not module:
            if len(self._roots) > 1024:
                self._roots.clear()
            has_parameters = next(iter(module.parameters()), None) is not None
            known = self._roots[id(module)] = (weakref.ref(module), has_parameters)
        if known[1]:
            self._progress.forward(module.training, self._gradients_enabled())

    def _root_with_site(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._root(rows, args, kwargs)
        self._sites.note(rows)

    def _root_with_contents(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._root_with_site(rows, args, kwargs)
        if self._roots[id(args[0])][1]:
            self._contents.note(rows, args, kwargs)

    # ---- models and optimizers ----

    def _made_module(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._models.made(args[0])
        self._wrap_class(type(args[0]))

    def _makes_optimizer(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._wrap_class(type(args[0]))

    def _made_optimizer(self, rows: Any, args: Any, kwargs: Any, known: Any) -> None:
        if self._states is not None:
            self._states.made(rows, args[0])

    # ---- what may have changed ----

    def _backward(self, rows: Any, args: Any, kwargs: Any) -> None:
        self._progress.backward()
        losses = args[0] if args else kwargs.get("tensors")
        for loss in losses if isinstance(losses, (list, tuple)) else (losses,):
            # Reading it from a GPU waits for it, which hashing does anyway.
            if (type(loss) is self._tensor and loss.numel() == 1
                    and (loss.is_cpu or self._states is not None) and self._contents.readable(loss)
                    and loss.item() != loss.item()):
                rows.append(LOSS, time.monotonic_ns(), NAN, 0)

    def _after_backward(self, rows: Any, args: Any, kwargs: Any, known: Any) -> None:
        if self._states is not None:
            self._states.gradients(rows, "torch.autograd.backward", SURELY)

    def _gradients_after(self, name: str) -> After:
        def after(rows: Any, args: Any, kwargs: Any, known: Any) -> None:
            self._states.gradients(rows, name, IF_NEW)  # type: ignore[union-attr]

        return after

    def _before_step(self, rows: Any, args: Any, kwargs: Any) -> int:
        if callable(args[1] if len(args) > 1 else kwargs.get("closure")):
            self._progress.begins()  # the whole iteration lies in the step
        self._progress.steps()
        if self._states is not None:
            self._states.steps(rows, args[0])
        return time.monotonic_ns()

    def _after_step(self, name: str) -> After:
        def after(rows: Any, args: Any, kwargs: Any, known: Any) -> None:
            if self._states is not None:
                self._states.stepped(rows, args[0], name, known or 0)
            self._progress.stepped()

        return after

    def _after_update(self, name: str) -> After:
        def after(rows: Any, args: Any, kwargs: Any, known: Any) -> None:
            tensors = args[0] if args else kwargs.get("params", [])
            self._states.updated(rows, tensors, name)  # type: ignore[union-attr]

        return after


def _is_step(name: str, owner: Any) -> bool:
    optimizer = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    return (name.endswith(".step") and isinstance(owner, type) and optimizer is not None
            and issubclass(owner, optimizer))


def _is_update(name: str, owner: Any) -> bool:
    """torch.optim.sgd.sgd, torch.optim.adam.adam: module and function have one name."""
    parts = name.split(".")
    return (isinstance(owner, types.ModuleType) and name.startswith("torch.optim.")
            and len(parts) == 4 and parts[2] == parts[3])
