# SPDX-License-Identifier: Apache-2.0
"""The tensors in what modules take and return, and what their places are called.

`output.0` is the first of a tuple (or the only tensor), `output.logits` a member of a dictionary or
dataclass, `output.0.1` lies deeper.
"""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
from typing import Any, Dict, List, Tuple

DEPTH = 8  # deeper structures are not searched; it also ends those that contain themselves

Found = List[Tuple[str, Any]]  # slot, tensor


class Finder:
    def __init__(self, torch: Any):
        self._tensor = torch.Tensor
        self._module = torch.nn.Module
        self._plain = {str, int, float, bool, bytes, type(None), torch.dtype, torch.device}

    def outputs(self, value: Any) -> Found:
        if isinstance(value, self._tensor):
            return [("output.0", value)]
        found: Found = []
        self._search(value, "output", found, 0)
        return found

    def positional(self, args: Tuple[Any, ...]) -> Found:
        if len(args) == 1 and isinstance(args[0], self._tensor):
            return [("input.0", args[0])]
        found: Found = []
        self._search(args, "input", found, 0)
        return found

    def keywords(self, kwargs: Dict[str, Any]) -> Found:
        found: Found = []
        self._search(kwargs, "input", found, 0)
        return found

    def _search(self, value: Any, slot: str, found: Found, depth: int) -> None:
        if isinstance(value, self._tensor):
            found.append((slot, value))
        elif type(value) in self._plain or depth == DEPTH:
            return
        elif isinstance(value, (tuple, list)):
            for number, member in enumerate(value):
                self._search(member, f"{slot}.{number}", found, depth + 1)
        elif isinstance(value, collections.abc.Mapping):
            for key, member in value.items():
                self._search(member, f"{slot}.{key}", found, depth + 1)
        elif dataclasses.is_dataclass(value) and not isinstance(value, (type, self._module)):
            for field in dataclasses.fields(value):
                self._search(getattr(value, field.name, None), f"{slot}.{field.name}", found,
                             depth + 1)

    def replace(self, value: Any, slot: str, new: Dict[str, Any]) -> Any:
        """The same structure with other tensors in the places that `new` names; never in place."""
        if isinstance(value, self._tensor):
            return new.get(slot, value)
        if not any(name.startswith(f"{slot}.") for name in new):
            return value
        if isinstance(value, (tuple, list)):
            members = [self.replace(member, f"{slot}.{number}", new)
                       for number, member in enumerate(value)]
            named = hasattr(value, "_fields")
            return type(value)(*members) if named else type(value)(members)
        replaced = copy.copy(value)
        if isinstance(value, collections.abc.Mapping):
            for key, member in value.items():
                replaced[key] = self.replace(member, f"{slot}.{key}", new)
            return replaced
        for field in dataclasses.fields(value):
            member = self.replace(getattr(value, field.name, None), f"{slot}.{field.name}", new)
            object.__setattr__(replaced, field.name, member)
        return replaced
