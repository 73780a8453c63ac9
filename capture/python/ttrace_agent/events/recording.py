# SPDX-License-Identifier: Apache-2.0
"""The recording of a process: its parts, its file, and its life."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import sys
import time
from typing import Any, Optional, Tuple

from .. import arming
from ..adapters import dtensor
from ..mesh import Mesh
from ..options import Options
from . import instrument, wrappers
from .contents import Contents
from .hashing import make_looker
from .instrument import Instrument
from .models import Models
from .progress import Progress
from .selection import Selection
from .sites import Sites
from .specials import Specials
from .states import States
from .stream import Stream
from .values import Values, name_of

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_PROGRAMS_METHODS = ("forward", "step")  # of the program's own modules and optimizers


class Recording:
    def __init__(self, torch: Any, selected: Optional[str]):
        self._torch = torch
        self._options = Options.from_environment()
        self._selection = Selection.from_file(selected) if selected else None
        self._mesh = Mesh(torch)
        self._stream = Stream(self._open)
        self._values = Values(self._stream, torch)
        self._models = Models(torch)
        self._progress = Progress(self._stream, self._mesh)
        self._progress.roots = self._models.roots
        self._looker = make_looker(torch, os.environ["TTRACE_LIB"], self._values.state)
        self._states = self._make_states()
        contents = Contents(torch, self._stream, self._looker)
        self._sites = Sites(torch, self._stream)
        self._specials = Specials(torch, self._stream, self._models, self._progress, self._states,
                                  contents, self._sites, self._wrap_class)
        self._instrument = Instrument(self._wrap, self._is_special)
        self._classes: set = set()

    def _make_states(self) -> Optional[States]:
        wanted = self._selection
        if wanted is not None and not wanted.variables:
            return None
        return States(self._torch, self._stream, self._models, self._looker,
                      wanted is None or wanted.data, wanted is None or wanted.grad,
                      wanted is None or wanted.states)

    def install(self) -> None:
        # A call of a module takes two more frames.
        sys.setrecursionlimit(2 * sys.getrecursionlimit())
        self._progress.start()
        # It keeps the constructors in a table, by identity, from its first use on.
        importlib.import_module("torch.utils._device")._device_constructors()
        _keep_torchscript(self._torch)
        self._instrument.torch_modules(at_once=True)
        instrument.watch_imports(self._before_import, self._after_import)
        arming.after_import("torch.distributed.device_mesh", lambda module: dtensor.watch_meshes(
            module, self._mesh.device_meshes))
        # A compiled model begins with a wrapper's frame, which is not to be compiled itself.
        arming.after_import("torch.fx._symbolic_trace", _keep_fx)
        arming.after_import("torch._dynamo.trace_rules", lambda rules: rules.add(__package__))
        os.register_at_fork(after_in_child=self._after_fork)
        import multiprocessing.util  # children of multiprocessing never run atexit

        multiprocessing.util.register_after_fork(self, Recording._close_at_exit)
        self._close_at_exit()
        atexit.register(self._stream.close)

    def _close_at_exit(self) -> None:
        import multiprocessing.util

        multiprocessing.util.Finalize(None, self._stream.close, exitpriority=0)

    # ---- what is wrapped ----

    def _is_special(self, name: str) -> bool:
        return name in self._specials.inner or name in self._specials.outer

    def _wrap(self, function: Any, name: str, owner: Any) -> Any:
        inner = wrapped = self._specials.wrap_inner(function, name, owner)
        if not instrument.skipped(name) and not name.endswith(".__setstate__"):
            wrapped = self._recorded(inner, function, name)
        recorded = wrapped is not inner
        wrapped = self._specials.wrap_outer(wrapped, name, owner, recorded,
                                            recorded and self._wants_contents(name))
        return None if wrapped is function else wrapped

    def _recorded(self, wrapped: Any, function: Any, name: str) -> Any:
        if self._selection is None:
            return wrappers.recorder(wrapped, self._stream, self._values)
        need = self._selection.of(name)
        if need is None:
            return wrapped
        return wrappers.recorder(wrapped, self._stream, self._values, need.arguments, need.results,
                                 None if need.everything else need.wants)

    def _wants_contents(self, name: str) -> bool:
        """Of a function that is recorded: whether its calls are told apart by what they are given."""
        if self._selection is None:
            return True
        need = self._selection.of(name)
        return need is not None and need.everything

    def _wrap_class(self, kind: type) -> None:
        """The program's own forward() and step()."""
        if kind in self._classes:
            return
        for base in kind.__mro__:
            if base in self._classes or base is object:
                continue
            self._classes.add(base)
            if not base.__module__.startswith("torch."):
                for key in _PROGRAMS_METHODS:
                    self._instrument.method(base, key, self._wrap_own)

    def _wrap_own(self, function: Any, owner: type) -> Any:
        name = name_of(function)
        inner = self._specials.wrap_inner(function, name, owner)
        wrapped = self._recorded(inner, function, name)
        recorded = wrapped is not inner
        return self._specials.wrap_outer(wrapped, name, owner, recorded,
                                         recorded and self._wants_contents(name))

    # ---- imports ----

    def _before_import(self, name: str) -> None:
        local = self._stream.local
        if local.importing == 0:
            local.before_import, local.rows = local.rows, None
        local.importing += 1

    def _after_import(self, name: str) -> None:
        local = self._stream.local
        local.importing -= 1
        if local.importing == 0:
            try:
                self._instrument.torch_modules()
            except Exception as error:  # recording must never stop the program
                print(f"ttrace: calls of {name} are not recorded: {error!r}", file=sys.stderr)
            finally:
                local.rows = local.before_import

    # ---- the file ----

    def _rank(self) -> Tuple[int, int]:
        rank, size = self._mesh.rank_and_size()
        if rank is not None:
            return rank, size
        rank = next((int(os.environ[name]) for name in _RANKS if os.environ.get(name)), 0)
        return rank, int(os.environ.get("WORLD_SIZE") or 1)

    def _open(self, last: bool) -> Optional[Tuple[int, Any]]:
        """Launchers and workers have nothing to tell, unless nobody else writes as this rank."""
        known = self._mesh.rank_and_size()[0] is not None
        if not (known or self._progress.active or last) or arming.in_data_worker():
            return None
        rank, size = self._rank()
        if not self._options.wants_rank(rank):
            return None
        folder = os.path.join(os.environ["TTRACE_OUT"], f"rank{rank:05d}")
        os.makedirs(folder, exist_ok=True)
        number = 0
        while True:
            path = os.path.join(folder, f"events.{number}.bin" if number else "events.bin")
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
                break
            except FileExistsError:
                if not self._progress.active and not known:
                    return None
                number += 1
        described = {"run_id": os.environ.get("TTRACE_RUN_ID", ""), "rank": rank,
                     "world_size": size, "host": socket.gethostname(), "pid": os.getpid(),
                     "unix_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
        if number == 0:
            _write_rank_file(folder, described)
        return file, described

    def _after_fork(self) -> None:
        self._stream.after_fork()
        self._values.after_fork()
        self._sites.after_fork()
        if self._states is not None:
            self._states.after_fork()
        self._progress.start()


def _write_rank_file(folder: str, described: Any) -> None:
    """The rank.json of a rank of which only events are recorded."""
    members = {"format": "ttrace-rank", "version": 1, "axes": [], "groups": {}, "modules": {},
               "parameters": {}, "events": [], "degraded": False, "records": 0, "bytes": 0,
               "lost": 0}
    members.update({name: described[name]
                    for name in ("run_id", "rank", "world_size", "host", "pid")})
    path = os.path.join(folder, "rank.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(members, file, indent=1)
    os.replace(path + ".part", path)


def _keep_fx(tracing: Any) -> None:
    """It makes a function of its own of a forward's code, as what that decorates has it."""
    patch = getattr(tracing, "_patch_function", None)
    if patch is not None:
        tracing._patch_function = lambda function, *rest: patch(wrappers.original(function), *rest)


def _keep_torchscript(torch: Any) -> None:
    """TorchScript knows builtin functions by identity."""
    builtins = getattr(torch.jit, "_builtins", None)
    find = getattr(builtins, "_find_builtin", None)
    if find is not None:
        builtins._find_builtin = lambda function: find(wrappers.original(function))
    internal = torch._jit_internal
    get = getattr(internal, "_try_get_dispatched_fn", None)
    if get is not None:
        internal._try_get_dispatched_fn = lambda function: get(wrappers.original(function))
