# SPDX-License-Identifier: Apache-2.0
"""When parameters, their gradients and optimizer states change.

They are looked at where they can: gradients after the backward pass, after clipping and zero_grad;
all of them when the optimizer is made, after the function that makes the update, and after the
step. There everything is hashed, whatever versions say, because collectives write without a new
one; elsewhere what has the same memory and version as before is not. A row is written for what has
changed, and in each step for every parameter of the optimizer.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .models import Models
from .native import Variable
from .stream import Stream

NO, IF_NEW, SURELY = range(3)  # whether to hash, as variables.cpp has it
Found = Tuple[List[Any], List[Any]]  # variables, and their tensors


class States:
    def __init__(self, torch: Any, stream: Stream, models: Models, looker: Any,
                 want_data: bool = True, want_grad: bool = True, want_states: bool = True):
        self._tensor = torch.Tensor
        self._stream = stream
        self._models = models
        self._looker = looker
        self._want_data, self._want_grad, self._want_states = want_data, want_grad, want_states
        self._variables: Dict[int, Any] = {}
        self._optimizers: Dict[int, Tuple[Any, str]] = {}
        self._of_optimizers: Dict[int, Tuple[List[int], List[Any]]] = {}
        self._of_states: Dict[int, List[Any]] = {}  # variables, by id of the optimizer
        self._updated: Dict[int, List[Any]] = {}  # by their number
        self._of_models: List[Any] = []
        self._models_seen = -1

    def after_fork(self) -> None:
        self._variables = {}
        self._of_optimizers, self._of_states, self._updated = {}, {}, {}
        self._models_seen = -1

    # ---- who is who ----

    def _find(self, tensor: Any, name: Callable[..., str], *rest: Any) -> Any:
        """`name(tensor, *rest)` is what it is called when it is new."""
        known = self._variables.get(id(tensor))
        if known is not None and known.ref() is tensor:
            return known
        variable = self._variables[id(tensor)] = Variable(
            weakref.ref(tensor), self._stream.text(name(tensor, *rest)))
        return variable

    def _parameter_name(self, tensor: Any) -> str:
        """One that is in no module is numbered."""
        return self._models.name_of(tensor) or self._models.unique("parameter")

    def _state_name(self, tensor: Any, parameter: Any, slot: str, owner: str) -> str:
        return f"{owner}.{self._models.name_of(parameter) or 'parameter'}.{slot}"

    def _optimizer_name(self, optimizer: Any) -> str:
        known = self._optimizers.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        name = self._models.unique(self._models.variable([optimizer], "optimizer"))
        self._optimizers[id(optimizer)] = (weakref.ref(optimizer), name)
        return name

    # ---- the moments ----

    def made(self, rows: Any, optimizer: Any) -> None:
        """An optimizer: its parameters as they are at the beginning."""
        self._look(rows, self._found_of(optimizer), "torch.optim.optimizer.Optimizer.__init__",
                   *self._wanted(IF_NEW))

    def gradients(self, rows: Any, where: str, hash_grad: int) -> None:
        """Of all models."""
        if not self._want_grad:
            return
        if self._models_seen != self._models.changes or self._models.fresh:
            self._of_models = [self._find(parameter, self._parameter_name)
                               for parameter, _ in self._models.parameters()]
            self._models_seen = self._models.changes
        variables, tensors = [], []
        for variable in self._of_models:
            tensor = variable.ref()
            if tensor is not None and tensor.requires_grad:
                variables.append(variable)
                tensors.append(tensor)
        self._look(rows, (variables, tensors), where, NO, hash_grad)

    def steps(self, rows: Any, optimizer: Any) -> None:
        """Before a step: what was changed outside of all steps."""
        found = self._found_of(optimizer)
        if self._looker.changed(*found):
            self._look(rows, found, "before the step", *self._wanted(IF_NEW))

    def stepped(self, rows: Any, optimizer: Any, where: str, since: int) -> None:
        """After a step. What was looked at after `since` has its row, if it is still the same."""
        found = self._found_of(optimizer)
        self._look(rows, found, where, *self._wanted(SURELY), True, since)
        if self._want_states:
            self._look(rows, self._states_of(optimizer, found[1]), where, SURELY, NO, True)

    def updated(self, rows: Any, tensors: Iterable[Any], where: str) -> None:
        """After the function that makes the update."""
        tensors = list(tensors)
        known = self._updated.get(len(tensors))
        if known is None or not self._looker.are(known, tensors):
            known = self._updated[len(tensors)] = [self._find(tensor, self._parameter_name)
                                                   for tensor in tensors]
        self._look(rows, (known, tensors), where, *self._wanted(SURELY), True)

    # ---- looking ----

    def _look(self, rows: Any, found: Found, where: str, hash_data: int, hash_grad: int,
              always: bool = False, since: int = -1) -> None:
        """Writes rows of what has changed; `always`: of everything."""
        self._looker.look(rows, *found, self._stream.text(where), hash_data, hash_grad,
                          self._want_data, since, always)

    def _wanted(self, hash_data: int) -> Tuple[int, int]:
        return hash_data if self._want_data else NO, IF_NEW if self._want_grad else NO

    def _states_of(self, optimizer: Any, parameters: List[Any]) -> Found:
        of, places = optimizer.state, []
        for parameter in parameters:
            for slot, value in (of.get(parameter) or {}).items():
                if slot != "step" and isinstance(value, self._tensor):
                    places.append((value, parameter, slot))
        tensors = [place[0] for place in places]
        known = self._of_states.get(id(optimizer))
        if known is None or not self._looker.are(known, tensors):
            owner = self._optimizer_name(optimizer)
            known = self._of_states[id(optimizer)] = [
                self._find(value, self._state_name, parameter, slot, owner)
                for value, parameter, slot in places]
        return known, tensors

    def _found_of(self, optimizer: Any) -> Found:
        tensors = parameters_of(optimizer)
        ids = list(map(id, tensors))
        known = self._of_optimizers.get(id(optimizer))
        if known is None or known[0] != ids or not self._looker.are(known[1], tensors):
            if len(self._of_optimizers) > 1024:
                self._of_optimizers.clear()
            variables = [self._find(tensor, self._parameter_name) for tensor in tensors]
            known = self._of_optimizers[id(optimizer)] = (ids, variables)
        return known[1], tensors


def parameters_of(optimizer: Any) -> List[Any]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]
