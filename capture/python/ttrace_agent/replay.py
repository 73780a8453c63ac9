# SPDX-License-Identifier: Apache-2.0
"""--replay PACK: this run is fed what another run has computed, so each module is judged alone.

At every point between modules the value that this run computes is recorded, then overwritten by
the other run's, forward and backward. Parameters are set before the first forward pass of each
iteration; gradients, masters and optimizer states before the step, so that clipping and the step
start from the other run's values, too. The live tensor's type wins: a pack of bfloat16 tensors
feeds a float32 run. A pack (docs/format.md) names its tensors by their keys.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from . import adapters, layouts
from .initial import Initialiser
from .names import Root
from .overwrite import TapKey
from .pack import Pack
from .targets import Target

_MISSING = "the pack has no such tensor"


class Replay:
    def __init__(self, agent: Any, torch: Any, options: Dict[str, Any]):
        self._agent = agent
        self._torch = torch
        self._pack = Pack(options["pack"], torch)
        replay = self._pack.index.get("replay") or {}
        self._microbatches: Dict[str, Any] = replay.get("microbatches") or {}
        self._layouts: Dict[str, Any] = replay.get("layouts") or {}
        self._iterations = {int(number) for number in self._microbatches}
        self.is_cut = bool(self._layouts)  # the pack is for a run of several ranks
        self.overwritten = 0

    # ---- activations and their gradients ----

    def value(self, key: TapKey, tensor: Any) -> Optional[Callable[[], Any]]:
        """A function that makes the other run's tensor, fit to take the place of `tensor`."""
        name = self._name(key)
        if name is None or name not in self._pack.tensors:
            return None
        if type(tensor) is not self._torch.Tensor:
            self._agent.note("not overwritten", f"{key.module}/{key.slot}",
                             f"it is a {type(tensor).__name__}")
            return None
        stored = self._part(name)
        if stored.shape != tensor.shape:
            self._agent.note("not overwritten", f"{key.module}/{key.slot}",
                             f"it is {tuple(tensor.shape)} here, {tuple(stored.shape)} in the pack")
            return None
        scale = self._pack.tensors[name].get("scale", 1)
        self.overwritten += 1

        def make() -> Any:
            with self._torch.no_grad():
                fresh = self._torch.empty_like(tensor.detach()).copy_(stored)
                return fresh if scale == 1 else fresh.mul_(scale)

        return make

    def _part(self, name: str) -> Any:
        """What this rank holds of a tensor; whole where nothing says how it is cut."""
        stored = self._pack.tensor(name)
        layout = self._layouts.get(name)
        if layout is None:
            return stored
        axes = self._agent.mesh.positions(self._agent.names.roots)
        runs = [layouts.runs_of(extent, cuts, axes)
                for extent, cuts in zip(stored.shape, layouts.parse_dims(layout["dims"]))]
        part = layouts.cut(stored, runs)
        return part.transpose(*layout["swapped"]) if "swapped" in layout else part

    def _name(self, key: TapKey) -> Optional[str]:
        iteration = self._agent.steps.iteration
        rank, _ = self._agent.mesh.rank_and_size()
        numbers = self._microbatches.get(str(iteration), {}).get(str(rank or 0), {})
        number = numbers.get(str(key.microbatch))
        if number is None:
            return None
        call = f"#{key.call}" if key.call else ""
        return f"it{iteration}/mb{number}/{key.phase}/{_escaped(key.module)}{call}/{key.slot}"

    # ---- parameters, gradients, states ----

    def set_parameters(self, root: Root) -> None:
        """All parameters, and the masters made of them, as they were before this iteration."""
        iteration = self._agent.steps.iteration
        if iteration not in self._iterations:
            return
        initialiser = Initialiser(self._agent, self._torch, {"kind": "pack"},
                                  _Parameters(self._pack, f"it{iteration}/param/", "/value"))
        with self._torch.no_grad():
            for name in initialiser.set_known(root):
                self._agent.note("not overwritten", name, _MISSING)
            adapters.reload_masters()

    def knows_state(self) -> bool:
        """Whether this iteration's optimizer states can be those of the other run."""
        iteration = self._agent.steps.iteration
        return iteration == 0 or iteration - 1 in self._iterations

    def set_gradient(self, target: Target, slot: str, call: int, gradient: Any) -> None:
        call_text = f"#{call}" if call else ""
        self._set(target, f"grad/{_escaped(target.name)}{call_text}/{slot}", gradient)

    def set_state(self, target: Target, slot: str, tensor: Any) -> None:
        """What an optimizer holds before its step: masters and states."""
        iteration = self._agent.steps.iteration
        if iteration > 0:
            self._set(target, f"step/{_escaped(target.name)}/{slot}", tensor, iteration - 1)
        elif slot == "master":
            self._set(target, f"param/{_escaped(target.name)}/{slot}", tensor)

    def _set(self, target: Target, tail: str, tensor: Any,
             iteration: Optional[int] = None) -> None:
        number = self._agent.steps.iteration if iteration is None else iteration
        name = f"it{number}/{tail}"
        if name not in self._pack.tensors:
            return
        local, _ = adapters.local_part(tensor)
        stored = layouts.flat_part(self._part(name), target.layout)
        if local is None or local.numel() != stored.numel():
            self._agent.note("not overwritten", tail, "it is cut here, and whole in the pack")
            return
        with self._torch.no_grad():
            local.copy_(stored.reshape(local.shape))


class _Parameters:
    """Those of one iteration, by their plain names."""

    def __init__(self, pack: Pack, before: str, after: str):
        self._pack = pack
        self._before, self._after = before, after
        self.tensors = {name[len(before):-len(after)]: entry
                        for name, entry in pack.tensors.items()
                        if name.startswith(before) and name.endswith(after)}

    def tensor(self, name: str) -> Any:
        return self._pack.tensor(f"{self._before}{name}{self._after}")


def _escaped(name: str) -> str:
    """As keys are printed."""
    for character in "%/#\0":
        name = name.replace(character, f"%{ord(character):02X}")
    return "%2E" if name == "." else name
