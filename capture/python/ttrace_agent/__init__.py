# SPDX-License-Identifier: Apache-2.0
"""Records the tensors of a PyTorch program without a change to it.

`ttrace-capture -- COMMAND` arms this package inside the command's processes; nothing here has to be
called. The functions below are for programs that want to say more than can be seen from outside.
Each does nothing when the program is not being traced, so calls may stay in the code.
"""

from __future__ import annotations

import contextlib

from . import arming

__all__ = ["mark_iteration", "pause", "paused", "record", "resume"]


def mark_iteration() -> None:
    """The parameters have just been updated: the next forward pass begins a new iteration.

    Needed only where no torch or Megatron optimizer makes the update, to have the gradients, too:
    call it after the update and before they are cleared.
    """
    agent = arming.agent()
    if agent is not None:
        agent.guarded("mark_iteration", agent.steps.mark)


def record(name: str, tensor) -> None:
    """Records a tensor (or a structure of them) as `forward/<name>/output.N`.

    The copy is made before this returns; the name must be the same in every layout.
    """
    agent = arming.agent()
    if agent is not None:
        agent.guarded(name, agent.hooks.record_named, name, tensor)


def pause() -> None:
    """Records no forward passes and no collectives that begin from here on, until resume()."""
    agent = arming.agent()
    if agent is not None:
        agent.paused = True


def resume() -> None:
    agent = arming.agent()
    if agent is not None:
        agent.paused = False


@contextlib.contextmanager
def paused():
    """pause() around a block, and after it as before."""
    agent = arming.agent()
    before = agent is not None and agent.paused
    pause()
    try:
        yield
    finally:
        if not before:
            resume()
