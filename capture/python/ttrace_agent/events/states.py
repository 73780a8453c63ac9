# SPDX-License-Identifier: Apache-2.0
"""When parameters, their gradients and optimizer states change.

They are looked at where they can: gradients after the backward pass, after clipping and zero_grad;
all of them when the optimizer is made, after the function that makes the update, and after the
step. There everything is hashed, whatever versions say, because collectives write without a new
one; elsewhere what has the same memory and version as before is not. A row is written for what has
changed, and in each step for every parameter of the optimizer.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .hashing import Hasher
from .models import Models
from .stream import STATE, STATE_VALUES, Stream
from .values import Values

HAS_DATA, HAS_GRAD, GRAD_UNKNOWN = 1, 2, 4
UNSEEN = 8  # never in a file
NO, IF_NEW, SURELY = range(3)  # whether to hash


class Variable:
    """A parameter or a tensor of an optimizer's state, and what was last seen of it."""

    __slots__ = ("ref", "code", "version", "address", "grad_version", "grad_id", "data", "grad",
                 "flags", "looked", "metas")

    def __init__(self, tensor: Any, code: int):
        self.ref = weakref.ref(tensor)
        self.code = code  # of its rows
        self.version = self.address = self.grad_version = self.grad_id = -1
        self.data = self.grad = 0  # hashes
        self.flags = UNSEEN
        self.looked = 0  # ns
        self.metas: Dict[Any, int] = {}  # descriptions of what it is beside its values

    def meta(self, tensor: Any, values: Values) -> int:
        key = (self.flags, tensor.requires_grad, self.address)
        number = self.metas.get(key)
        if number is None:
            if len(self.metas) > 64:
                self.metas.clear()
            number = self.metas[key] = values.state(tensor)
        return number


class States:
    def __init__(self, torch: Any, stream: Stream, values: Values, models: Models, hasher: Hasher,
                 want_data: bool = True, want_grad: bool = True, want_states: bool = True):
        self._tensor = torch.Tensor
        self._plain = (torch.nn.Parameter, torch.Tensor)  # types whose memory can be asked for
        self._stream = stream
        self._values = values
        self._models = models
        self._hasher = hasher
        self._want_data, self._want_grad, self._want_states = want_data, want_grad, want_states
        self._variables: Dict[int, Variable] = {}
        self._optimizers: Dict[int, Tuple[Any, str]] = {}
        self._of_optimizers: Dict[int, Tuple[List[int], List[Variable]]] = {}
        self._of_models: List[Variable] = []
        self._models_seen = -1

    def after_fork(self) -> None:
        self._variables = {}
        self._of_optimizers = {}
        self._models_seen = -1

    # ---- who is who ----

    def _find(self, tensor: Any, name: Callable[..., str], *rest: Any) -> Variable:
        """`name(tensor, *rest)` is what it is called when it is new."""
        known = self._variables.get(id(tensor))
        if known is not None and known.ref() is tensor:
            return known
        code = self._stream.text(name(tensor, *rest)) << 3 | STATE
        variable = self._variables[id(tensor)] = Variable(tensor, code)
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

    def made(self, rows: List[int], optimizer: Any) -> None:
        """An optimizer: its parameters as they are at the beginning."""
        self._look(rows, self._pairs_of(optimizer), "torch.optim.optimizer.Optimizer.__init__",
                   *self._wanted(IF_NEW))

    def gradients(self, rows: List[int], where: str, hash_grad: int) -> None:
        """Of all models."""
        if not self._want_grad:
            return
        if self._models_seen != self._models.changes or self._models.fresh:
            self._of_models = [self._find(parameter, self._parameter_name)
                               for parameter, _ in self._models.parameters()]
            self._models_seen = self._models.changes
        found = []
        for variable in self._of_models:
            tensor = variable.ref()
            if tensor is not None and tensor.requires_grad:
                found.append((variable, tensor))
        self._look(rows, found, where, NO, hash_grad)

    def steps(self, rows: List[int], optimizer: Any) -> None:
        """Before a step: what was changed outside of all steps."""
        pairs = self._pairs_of(optimizer)
        for variable, tensor in pairs:
            gradient = tensor.grad
            if tensor._version != variable.version or variable.grad_id != (
                    -1 if gradient is None else id(gradient)) or (
                        gradient is not None and gradient._version != variable.grad_version):
                self._look(rows, pairs, "before the step", *self._wanted(IF_NEW))
                break

    def stepped(self, rows: List[int], optimizer: Any, where: str, since: int) -> None:
        """After a step. What was looked at after `since` has its row, if it is still the same."""
        pairs = self._pairs_of(optimizer)
        left = [(variable, tensor) for variable, tensor in pairs
                if variable.looked <= since or tensor._version != variable.version]
        self._look(rows, left, where, *self._wanted(SURELY), True)
        if self._want_states:
            parameters = [tensor for _, tensor in pairs]
            owner, find, name = self._optimizer_name(optimizer), self._find, self._state_name
            found = [(find(value, name, parameter, slot, owner), value)
                     for parameter in parameters
                     for slot, value in (optimizer.state.get(parameter) or {}).items()
                     if slot != "step" and isinstance(value, self._tensor)]
            self._look(rows, found, where, SURELY, NO, always=True)

    # ---- looking ----

    def updated(self, rows: List[int], tensors: Iterable[Any], where: str) -> None:
        """After the function that makes the update."""
        find, name = self._find, self._parameter_name
        self._look(rows, [(find(tensor, name), tensor) for tensor in tensors], where,
                   *self._wanted(SURELY), True)

    def _wanted(self, hash_data: int) -> Tuple[int, int]:
        return hash_data if self._want_data else NO, IF_NEW if self._want_grad else NO

    def _pairs_of(self, optimizer: Any) -> List[Tuple[Variable, Any]]:
        tensors = parameters_of(optimizer)
        ids = list(map(id, tensors))
        known = self._of_optimizers.get(id(optimizer))
        if known is None or known[0] != ids:
            if len(self._of_optimizers) > 1024:
                self._of_optimizers.clear()
            variables = [self._find(tensor, self._parameter_name) for tensor in tensors]
            known = self._of_optimizers[id(optimizer)] = (ids, variables)
        pairs = list(zip(known[1], tensors))
        if any([variable.ref() is not tensor for variable, tensor in pairs]):  # an id used again
            del self._of_optimizers[id(optimizer)]
            return self._pairs_of(optimizer)
        return pairs

    def _look(self, rows: List[int], pairs: List[Tuple[Variable, Any]], where: str, hash_data: int,
              hash_grad: int, always: bool = False) -> None:
        """Writes rows of what has changed; `always`: of everything."""
        now, plain = time.monotonic_ns(), self._plain
        before: List[Any] = []
        tensors: List[Any] = []
        homes: List[Any] = []
        for variable, tensor in pairs:
            flags = variable.flags
            before.append((variable.data, variable.grad, flags))
            if hash_data or (flags & UNSEEN and self._want_data):
                version = tensor._version
                address = tensor.data_ptr() if type(tensor) in plain else id(tensor)
                if (version != variable.version or address != variable.address
                        or hash_data == SURELY):
                    variable.version, variable.address = version, address
                    tensors.append(tensor)
                    homes.append((variable, True))
            if hash_grad:
                gradient = tensor.grad
                if gradient is None:
                    variable.flags = flags & HAS_DATA
                    variable.grad, variable.grad_id = 0, -1
                else:
                    version = gradient._version
                    if (version != variable.grad_version or id(gradient) != variable.grad_id
                            or hash_grad == SURELY):
                        variable.grad_version, variable.grad_id = version, id(gradient)
                        tensors.append(gradient)
                        homes.append((variable, False))
            variable.looked = now
        if tensors:
            self._hash(tensors, homes)
        place, values = self._stream.text(where), self._values
        for (variable, tensor), old in zip(pairs, before):
            data, grad, flags = variable.data, variable.grad, variable.flags
            if always or (data, grad, flags) != old:
                rows.extend((variable.code, now, variable.meta(tensor, values), place,
                             STATE_VALUES, data, grad, flags & ~UNSEEN))

    def _hash(self, tensors: List[Any], homes: List[Any]) -> None:
        for (variable, is_data), value in zip(homes, self._hasher.hashes(tensors)):
            if is_data:
                variable.data = value or 0
                variable.flags = (variable.flags & ~(HAS_DATA | UNSEEN)
                                  | (0 if value is None else HAS_DATA))
            else:
                variable.grad = value or 0
                variable.flags = (variable.flags & ~(GRAD_UNKNOWN | UNSEEN) | HAS_GRAD
                                  | (GRAD_UNKNOWN if value is None else 0))


def parameters_of(optimizer: Any) -> List[Any]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]
