# SPDX-License-Identifier: Apache-2.0
"""What a torch optimizer steps: a parameter of the model, or a tensor that stands for one.

Mixed precision keeps fp32 masters, distributed optimizers keep flat pieces of them; gradients,
masters and states are recorded under the parameter's name, with the piece as part of the layout.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import adapters, layouts
from .adapters.masters import Master, Masters
from .names import ParameterInfo


class Target(NamedTuple):
    name: str
    raw_name: str
    layout: str
    parameter: Any
    is_copy: bool  # the stepped tensor has bytes of its own, in a wider type
    part: Optional[Tuple[int, int]]

    def of(self, tensor: Any) -> Any:
        """The parameter's part of what is shaped like the stepped tensor."""
        return tensor if self.part is None else tensor.narrow(0, *self.part)


class Targets:
    def __init__(self, agent: Any):
        self._agent = agent
        self._masters: Masters = {}
        self._masters_of = -1  # iteration

    def of_groups(self, groups: List[Dict[str, Any]]) -> Iterator[Tuple[Any, Target]]:
        """(stepped tensor, what it stands for) of all of an optimizer's that are known."""
        unknown = 0
        for group in groups:
            for stepped in group["params"]:
                targets = self.find(stepped)
                for target in targets:
                    yield stepped, target
                unknown += not targets and getattr(stepped, "grad", None) is not None
        if unknown:
            self._agent.note("not recorded", "optimizer",
                             "it updates tensors that no module which was called holds")

    def copies(self) -> Iterator[Tuple[Any, Target]]:
        """The masters that frameworks keep beside parameters."""
        self._master(None)
        for main, _ in list(self._masters.values()):
            for target in self.find(main):
                if target.is_copy:
                    yield main, target

    def find(self, stepped: Any) -> List[Target]:
        """One, or several whose pieces a wrapper has joined; [] of a tensor that is unknown."""
        held = self._agent.names.held_by(stepped)
        if held:
            return [Target(info.name, info.raw_name, info.layout, stepped, False, info.part)
                    for info in held]
        main, masters = self._master(stepped)
        if main is not stepped:
            return []
        return [self._target(stepped, master, info) for master in masters
                for info in self._agent.names.held_by(master.parameter)]

    def _target(self, stepped: Any, master: Master, info: ParameterInfo) -> Target:
        layout = _piece_of(info, master) if master.flat else info.layout
        is_copy = (not _shares_storage(stepped, master.parameter)
                   and stepped.dtype != master.parameter.dtype)
        return Target(info.name, info.raw_name, layout, master.parameter, is_copy,
                      master.part or info.part)

    def _master(self, stepped: Any) -> Tuple[Any, List[Master]]:
        if self._masters_of != self._agent.steps.iteration:
            self._masters_of = self._agent.steps.iteration
            parameters = [info.ref() for root in self._agent.names.roots
                          for info in root.parameters]
            self._masters = adapters.masters([p for p in parameters if p is not None])
        return self._masters.get(id(stepped), (None, []))


def _piece_of(info: ParameterInfo, master: Master) -> str:
    """The parameter's own layout, and the flat piece of this rank's part of it."""
    shape = list(master.parameter.shape)
    declared = json.loads(info.layout) if info.layout else {}
    return layouts.to_json(declared.get("dims", layouts.dims_text([[]] * len(shape))),
                           declared.get("shape", shape), declared.get("source", master.source),
                           master.flat)


def _shares_storage(stepped: Any, parameter: Any) -> bool:
    return stepped.untyped_storage() is parameter.untyped_storage()
