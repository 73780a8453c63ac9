# SPDX-License-Identifier: Apache-2.0
"""The agent of a process: its parts, its life, and what happens when something in it goes wrong.

Nothing that fails in here may reach the program. Every entrance catches its exceptions, says in
rank.json what is missing because of them, and after ten of them the agent takes its hooks away.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import traceback
import warnings
from typing import Any, Callable, List, Set, Tuple

from . import abi, adapters, arming, collectives
from .gradients import Gradients
from .hooks import ModuleHooks
from .initial import Initialiser
from .mesh import Mesh
from .names import Names, Root
from .options import Options
from .overwrite import Overwriter
from .perturb import Perturbation
from .recorder import Recorder
from .replay import Replay
from .steps import Steps

ERRORS_ALLOWED = 10


def start(torch: Any) -> "Agent":
    agent = Agent(torch, Options.from_environment(), abi.Library.from_environment())
    try:
        agent.install()
    except Exception:
        agent.fall_silent()
        raise
    return agent


class Agent:
    def __init__(self, torch: Any, options: Options, library: abi.Library):
        self._torch = torch
        self.options = options
        self.library = library
        self.opened = False
        self._paused = False
        self.awake = True  # module calls matter now
        self.latest_context: Any = None  # the micro-batch under way
        self._silent = False  # for good
        self._dozed = False  # module calls were not looked at for some time
        self._errors = 0
        self._noted: Set[Tuple[str, str]] = set()
        self._notes: List[Tuple[str, str, str]] = []  # from before the library was open
        self._described: Set[int] = set()
        self.mesh = Mesh(torch)
        self.names = Names(self, torch)
        self.recorder = Recorder(self, torch)
        self.gradients = Gradients(self, torch)
        self.hooks = ModuleHooks(self, torch)
        self.collectives: Any = None  # their observer
        self.steps = Steps(self, torch)
        self._initialiser = Initialiser(self, torch, options.init) if options.init else None
        self.replay = Replay(self, torch, options.replay) if options.replay else None
        source = self.replay
        if options.perturb is not None:
            source = Perturbation(self, torch, options.perturb)
        if source is not None:
            self.hooks.overwrite_with(Overwriter(self, torch, source))

    def install(self) -> None:
        # Said about every compiled module as soon as a global hook exists; the agent knows.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are")
        self._watch_collectives()
        self.hooks.install()
        self.steps.install()
        adapters.watch(self, arming.after_import, self._torch)

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self.library.pause(paused)  # for who sees NCCL's calls

    def _watch_collectives(self) -> None:
        if self.library.collectives_wanted() and self._torch.distributed.is_available():
            from . import comm

            self.collectives = comm.start(self, self._torch)
        else:
            collectives.watch(self._torch, self.touched)

    # ---- life ----

    def update_awake(self) -> None:
        """Module calls are looked at while recording, and to see the next iteration begin."""
        waiting = self._initialiser is not None and self.steps.iteration <= 0
        self.awake = not self._silent and (
            self.steps.recording or not self.steps.running or waiting)
        self._dozed = self._dozed or not self.awake

    def begin_iteration(self, iteration: int) -> bool:
        """Opens a segment; false when nothing can be recorded in this process."""
        if self._silent or not self.open():
            return False
        if self.recorder.estimate is None and self.library.begin_iteration(iteration) < 0:
            self._stop(f"iteration {iteration}: {self.library.last_error()}")
            return False
        self.recorder.begin()
        self.names.begin_iteration()
        self.gradients.begin_iteration()
        self.hooks.begin_iteration()
        if self.collectives is not None:
            self.collectives.begin_iteration()
        self.latest_context = None
        return True

    def end_iteration(self) -> None:
        if not self._silent:
            if self.collectives is not None:
                self.guarded("collectives", self.collectives.end_iteration)
            self.tell({"modules": self.names.call_table()})
            if self.replay is not None:
                self.tell({"fed": self.replay.overwritten})
            if self.recorder.estimate is not None:
                self.tell({"estimate_bytes": dict(self.recorder.estimate.bytes)})
            else:
                self.library.end_iteration()

    def open(self) -> bool:
        """At the first thing to say; false in processes that are none of ours."""
        if self.opened:
            return True
        rank, world_size = self.mesh.rank_and_size()
        known_rank = rank if rank is not None else int(os.environ.get("RANK") or 0)
        if (arming.in_data_worker() or not self.options.wants_rank(known_rank)
                or self.library.open(rank, world_size) < 0):  # which has said why
            self.fall_silent()
            return False
        self.opened = True
        import multiprocessing.util  # children of multiprocessing never run atexit

        multiprocessing.util.Finalize(None, self.close, exitpriority=0)
        atexit.register(self.close)
        for note in self._notes:
            self.library.note(*note)
        self._notes = []
        return True

    def close(self) -> None:
        if self.opened and not self._silent:
            self.guarded("close", self.steps.end)
            self.opened = False
            self.library.close()
            self.fall_silent()

    def fall_silent(self) -> None:
        """Records nothing any more, and leaves the library alone: it may be the parent's."""
        self._silent = True
        self.awake = False
        self.steps.recording = False
        self.hooks.remove()

    # ---- trouble ----

    def guarded(self, where: str, function: Callable[..., Any], *args: Any) -> None:
        if not self._silent:
            try:
                function(*args)
            except Exception as error:
                self.failed(where, error)

    def failed(self, where: str, error: Exception) -> None:
        if self._silent:
            return
        if os.environ.get("TTRACE_DEBUG"):
            traceback.print_exception(type(error), error, error.__traceback__)
        self._errors += 1
        self.note("hook failed", where, repr(error))
        self.tell({"degraded": True})
        if self._errors >= ERRORS_ALLOWED:
            self._stop(f"{self._errors} errors in the capture itself, the latest in {where}: "
                       f"{error!r}")

    def _stop(self, why: str) -> None:
        print(f"ttrace: capture ends here, the program goes on: {why}", file=sys.stderr)
        if self.opened:
            self.note("stopped", f"iteration {self.steps.iteration}", why)
        self.fall_silent()
        if self.opened:
            self.opened = False
            self.library.close()

    def note(self, what: str, where: str, why: str) -> None:
        """Says once in rank.json why something is missing."""
        if self._silent or (what, where) in self._noted:
            return
        self._noted.add((what, where))
        if self.opened:
            self.library.note(what, where, why)
        else:
            self._notes.append((what, where, why))

    # ---- tables ----

    def tell(self, members: Any) -> None:
        """rank.json."""
        if self.opened:
            self.library.set(json.dumps(members))

    def describe(self, root: Root) -> None:
        """Tells rank.json of a root, its parameters, and where this rank stands."""
        if id(root) in self._described:
            return
        self._described.add(id(root))
        axes = self._axes()
        self.tell({"axes": axes, "axes_guessed": self.mesh.guessed, "groups": self.mesh.groups(),
                   "modules": self.names.module_table(root),
                   "parameters": self.names.parameter_table(root)})

    def _axes(self) -> List[Any]:
        roots = self.names.roots
        axes = self.mesh.axes(roots)
        kinds = self.mesh.kinds(axes, roots)
        return [{"name": name, "size": size, "coord": coord,
                 **({"kind": kinds[name]} if name in kinds else {})}
                for name, size, coord in axes]

    # ---- for the parts ----

    def initialise(self, root: Root) -> None:
        if self._initialiser is None or root.initialised:
            return
        root.initialised = True
        if self._dozed:
            self.note("init_from", root.name, "may have been trained before it was seen for the "
                      "first time, so its parameters were left as they are: capture iteration 0")
        else:
            self._initialiser.apply(root)

    def touched(self, tensor: Any) -> None:
        if self.steps.recording:
            self.guarded("collective", self.recorder.forget, tensor)
