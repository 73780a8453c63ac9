# SPDX-License-Identifier: Apache-2.0
"""What a file of invariants needs to be checked: functions, with or without what goes in and out,
and whether variables are looked at."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Set

# Relations that ask what a call was given, and what it returned.
_EVERYTHING = ("DistinctArgumentRelation",)
_OTHERS = ("ConsistentInputOutputRelation", "ThresholdRelation")
_RESULTS = ("ConsistentOutputRelation", "ConsistentInputOutputRelation", "ThresholdRelation")
_MANAGERS = "meta_vars.context_managers."
_VARIABLES = ("VarTypeParam", "VarNameParam")


class Need:
    """Of one function. Which arguments: all, all but the object of a method, or those named."""

    __slots__ = ("everything", "others", "names", "results")

    def __init__(self) -> None:
        self.everything = self.others = False
        self.names: Set[str] = set()
        self.results = False

    def wants(self, name: str) -> bool:
        return self.everything or (self.others and name != "self") or name in self.names

    @property
    def arguments(self) -> bool:
        return self.everything or self.others or bool(self.names)


class Selection:
    def __init__(self, invariants: List[Dict[str, Any]]):
        self.functions: Dict[str, Need] = {}
        self.data = self.grad = self.states = False
        for invariant in invariants:
            self._add(invariant)

    @classmethod
    def from_file(cls, path: str) -> "Selection":
        invariants = []
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    found = json.loads(line)
                except ValueError:
                    continue  # ttrace-check will say so
                if isinstance(found, dict):
                    invariants.append(found)
        return cls(invariants)

    def of(self, function: str) -> Any:
        """None: not needed."""
        return self.functions.get(function)

    @property
    def variables(self) -> bool:
        return self.data or self.grad or self.states

    def _need(self, function: str) -> Need:
        return self.functions.setdefault(function, Need())

    def _add(self, invariant: Dict[str, Any]) -> None:
        relation = invariant.get("relation")
        parameters = [parameter for parameter in invariant.get("params") or []
                      if isinstance(parameter, dict)]
        for parameter in parameters:
            kind = parameter.get("param_type")
            name = parameter.get("api_full_name") or parameter.get("api_name")
            if isinstance(name, str):
                need = self._need(name)
                need.everything = need.everything or relation in _EVERYTHING
                need.others = need.others or relation in _OTHERS
                need.results = need.results or relation in _RESULTS
                need.names.update(_names_in(parameter.get("arguments")))
            elif kind in _VARIABLES and relation != "ConsistentOutputRelation":
                self._add_variable(parameter)
        self._add_managers(invariant.get("precondition"))

    def _add_variable(self, parameter: Dict[str, Any]) -> None:
        attribute = parameter.get("attr_name")
        if "Parameter" in str(parameter.get("var_type")):
            self.data = self.data or attribute != "grad"
            self.grad = self.grad or attribute == "grad"
        else:
            self.data = self.states = True

    def _add_managers(self, found: Any) -> None:
        """Context managers that a clause names."""
        if isinstance(found, dict):
            name = found.get("prop_name")
            if isinstance(name, str) and name.startswith(_MANAGERS):
                manager = name[len(_MANAGERS):]
                for kind in (manager, manager.rpartition(".")[0]):  # old files add an argument
                    self._need(f"{kind}.__init__").everything = True
                    self._need(f"{kind}.__enter__")
                    self._need(f"{kind}.__exit__")
            found = list(found.values())
        if isinstance(found, list):
            for member in found:
                self._add_managers(member)


def _names_in(arguments: Any) -> List[str]:
    found = arguments.get("args") if isinstance(arguments, dict) else None
    return list(found) if isinstance(found, dict) else []
