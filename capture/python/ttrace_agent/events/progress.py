# SPDX-License-Identifier: Apache-2.0
"""The meta variables: how far the training is, and where in the mesh this process stands.

`step` is 0 until the training begins and then counts iterations from 1: after an optimizer's step
the next zero_grad, or the next training forward pass of a model, begins a new one. `stage` is init,
training or testing: model.train() and model.eval() say so, and a forward pass of a whole model in
which the mode of the model and the recording of gradients agree.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ..mesh import Mesh
from .stream import Stream

# Keys as other tools have them; any other axis NAME becomes _NAME_RANK.
AXIS_KEYS = {"dp": "_DATA_PARALLEL_RANK", "tp": "_TENSOR_MODEL_PARALLEL_RANK",
             "pp": "_PIPELINE_MODEL_PARALLEL_RANK", "cp": "_CONTEXT_PARALLEL_RANK",
             "ep": "_EXPERT_MODEL_PARALLEL_RANK"}
INIT, TRAINING, TESTING = "init", "training", "testing"
STEPS_LOOKED_AT = 4  # for mesh coordinates: process groups are made at the beginning


class Progress:
    def __init__(self, stream: Stream, mesh: Mesh):
        self._stream = stream
        self._mesh = mesh
        self.roots: Callable[[], List[Any]] = list  # the models, as Mesh wants them
        self.active = False  # something was trained or evaluated
        self._stepped = True  # the next iteration may begin
        self.meta: Dict[str, Any] = {"step": 0, "stage": INIT}

    def start(self) -> None:
        """Also in a forked child, which writes a file of its own."""
        self.active = False
        self._stream.meta(self.meta)

    def _set(self, **members: Any) -> None:
        if any(self.meta.get(name) != value for name, value in members.items()):
            self.meta.update(members)
            self._stream.meta(self.meta)

    # ---- what happens ----

    def begins(self) -> None:
        """Something of an iteration: its first opens it."""
        self.active = True
        if self._stepped:
            self._stepped = False
            step = self.meta["step"] + 1
            places = self._places() if step <= STEPS_LOOKED_AT else {}
            if self.meta["stage"] == INIT:
                places["stage"] = TRAINING
            self._set(step=step, **places)

    def steps(self) -> None:
        """An optimizer begins its step: another one may have ended its own just before."""
        self.active = True
        if self.meta["step"] == 0:
            self.begins()

    def stepped(self) -> None:
        """An optimizer has updated its parameters."""
        self._stepped = True

    def mode(self, training: bool) -> None:
        """model.train() or model.eval()."""
        self._set(stage=TRAINING if training else TESTING)

    def forward(self, training: bool, gradients: bool) -> None:
        """A forward pass of a whole model begins."""
        self.active = True
        if training == gradients:
            self.mode(training)
        elif self.meta["stage"] == INIT:
            self.mode(gradients)
        if training and gradients:
            self.begins()

    def backward(self) -> None:
        self.active = True
        if self.meta["stage"] == INIT:
            self.mode(True)

    # ---- places ----

    def _places(self) -> Dict[str, Any]:
        rank, size = self._mesh.rank_and_size()
        if rank is None or size == 1:
            return {}
        places: Dict[str, Any] = {"rank": rank, "world_size": size}
        try:
            axes: List[Any] = self._mesh.axes(self.roots())
        except Exception:  # another version of a framework
            axes = []
        for name, _, coordinate in axes:
            if name != "rank":
                places[AXIS_KEYS.get(name, f"_{name.upper()}_RANK")] = coordinate
        return places
