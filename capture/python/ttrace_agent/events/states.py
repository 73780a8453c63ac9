# SPDX-License-Identifier: Apache-2.0
"""When parameters, their gradients and optimizer states change.

They are looked at where they can: gradients after the backward pass, after clipping and zero_grad;
all of them when the optimizer is made, after the function that makes the update, and after the
step. What has the same memory and version as when it was last hashed is not hashed again inside one
step; across steps everything is, because collectives write without a new version. A row is written
for what has changed, and after each step for every parameter of the optimizer.
"""

from __future__ import annotations

import functools
import math
import time
import weakref
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .hashing import Hasher
from .models import Models
from .stream import STATE, STATE_VALUES, Stream
from .values import Values

HAS_DATA, HAS_GRAD, GRAD_UNKNOWN, UNSEEN = 1, 2, 4, 8


class Variable:
    """A parameter or a tensor of an optimizer's state, and what was last seen of it."""

    __slots__ = ("ref", "code", "seen_data", "seen_grad", "data", "grad", "flags", "time")

    def __init__(self, tensor: Any, code: int):
        self.ref = weakref.ref(tensor)
        self.code = code  # of its rows
        self.seen_data: Any = None
        self.seen_grad: Any = None
        self.data: Optional[int] = None
        self.grad: Optional[int] = None
        self.flags = UNSEEN
        self.time = 0  # ns, of the last look

    def new_data(self, tensor: Any, surely: bool) -> bool:
        seen = _seen(tensor)
        if seen == self.seen_data and not surely:
            return False
        self.seen_data = seen
        return True

    def new_grad(self, gradient: Any, surely: bool) -> bool:
        if gradient is None:
            self.flags &= ~(HAS_GRAD | GRAD_UNKNOWN | UNSEEN)
            self.seen_grad = self.grad = None
            return False
        self.flags |= HAS_GRAD
        seen = _seen(gradient)
        if seen == self.seen_grad and not surely:
            return False
        self.seen_grad = seen
        return True

    def hashed(self, is_data: bool, value: Optional[int]) -> None:
        if is_data:
            self.data = value
            self.flags = self.flags & ~(HAS_DATA | UNSEEN) | (0 if value is None else HAS_DATA)
        else:
            self.grad = value
            self.flags = self.flags & ~GRAD_UNKNOWN | (GRAD_UNKNOWN if value is None else 0)


class States:
    def __init__(self, torch: Any, stream: Stream, values: Values, models: Models, hasher: Hasher,
                 want_data: bool = True, want_grad: bool = True, want_states: bool = True):
        self._tensor = torch.Tensor
        self._stream = stream
        self._values = values
        self._models = models
        self._hasher = hasher
        self._want_data, self._want_grad, self._want_states = want_data, want_grad, want_states
        self._variables: Dict[int, Variable] = {}
        self._optimizers: Dict[int, Tuple[Any, str]] = {}

    def after_fork(self) -> None:
        self._variables = {}

    # ---- who is who ----

    def _variable(self, tensor: Any, name: Any) -> Variable:
        """`name`: a text, or a function that makes it."""
        known = self._variables.get(id(tensor))
        if known is not None and known.ref() is tensor:
            return known
        text = name if isinstance(name, str) else name(tensor)
        variable = Variable(tensor, self._stream.text(text) << 3 | STATE)
        self._variables[id(tensor)] = variable
        return variable

    def _parameter(self, tensor: Any) -> Variable:
        return self._variable(tensor, self._parameter_name)

    def _parameter_name(self, tensor: Any) -> str:
        """One that is in no module is numbered."""
        return self._models.name_of(tensor) or self._models.unique("parameter")

    def _optimizer_name(self, optimizer: Any) -> str:
        known = self._optimizers.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        name = self._models.unique(self._models.variable([optimizer], "optimizer"))
        self._optimizers[id(optimizer)] = (weakref.ref(optimizer), name)
        return name

    def _state_name(self, owner: str, parameter: Any, slot: str, tensor: Any) -> str:
        return f"{owner}.{self._models.name_of(parameter) or 'parameter'}.{slot}"

    # ---- the moments ----

    def made(self, rows: List[int], optimizer: Any) -> None:
        """An optimizer: its parameters as they are at the beginning."""
        self._optimizer_name(optimizer)
        self.look(rows, parameters_of(optimizer), "torch.optim.optimizer.Optimizer.__init__")

    def gradients(self, rows: List[int], where: str, surely: bool) -> None:
        """Of all models. `surely`: whatever their versions say."""
        if self._want_grad:
            self.look(rows, [parameter for parameter, _ in self._models.parameters()
                             if parameter.requires_grad], where, data=False, surely=surely)

    def stepped(self, rows: List[int], optimizer: Any, where: str, seen: float) -> None:
        """After a step. What was looked at after the time `seen` counts as known."""
        parameters = parameters_of(optimizer)
        self.look(rows, parameters, where, surely=True, always=True, seen=seen)
        if self._want_states:
            self._look_at_states(rows, optimizer, parameters, where)

    def _look_at_states(self, rows: List[int], optimizer: Any, parameters: List[Any],
                        where: str) -> None:
        owner = self._optimizer_name(optimizer)
        found = []
        for parameter in parameters:
            for slot, value in (optimizer.state.get(parameter) or {}).items():
                if isinstance(value, self._tensor) and slot != "step":
                    name = functools.partial(self._state_name, owner, parameter, slot)
                    found.append((self._variable(value, name), value))
        self._look(rows, found, where, True, False, True, True, math.inf)

    # ---- looking ----

    def look(self, rows: List[int], tensors: Iterable[Any], where: str, data: bool = True,
             surely: bool = False, always: bool = False, seen: float = math.inf) -> None:
        """Hashes what may have changed and writes rows of what has; `always`: of everything.

        `surely`: whatever versions say, but for what was looked at after the time `seen`.
        """
        self._look(rows, [(self._parameter(tensor), tensor) for tensor in tensors], where,
                   data and self._want_data, self._want_grad, surely, always, seen)

    def _look(self, rows: List[int], looked: List[Tuple[Variable, Any]], where: str, data: bool,
              grad: bool, surely: bool, always: bool, seen: float) -> None:
        now = time.monotonic_ns()
        before = [(variable.data, variable.grad, variable.flags) for variable, _ in looked]
        jobs: List[Tuple[Variable, bool, Any]] = []
        for variable, tensor in looked:
            sure = surely and variable.time <= seen
            if (data or variable.seen_data is None) and variable.new_data(tensor, sure):
                jobs.append((variable, True, tensor))
            if grad and variable.new_grad(tensor.grad, surely and not data):
                jobs.append((variable, False, tensor.grad))
            variable.time = now
        if jobs:
            hashes = self._hasher.hashes([tensor for _, _, tensor in jobs])
            for (variable, is_data, _), value in zip(jobs, hashes):
                variable.hashed(is_data, value)
        place = self._stream.text(where)
        describe = self._values.state
        for (variable, tensor), old in zip(looked, before):
            if always or (variable.data, variable.grad, variable.flags) != old:
                rows.extend((variable.code, now, describe(tensor), place, STATE_VALUES,
                             variable.data or 0, variable.grad or 0, variable.flags))


def parameters_of(optimizer: Any) -> List[Any]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def _seen(tensor: Any) -> Any:
    """Changes with every change that torch counts; never equal where it does not count."""
    try:
        return tensor.data_ptr(), tensor._version
    except (RuntimeError, NotImplementedError):
        return object()
