# SPDX-License-Identifier: Apache-2.0
"""Waits for the imports that matter, and keeps quiet where nothing is to be captured.

Arming costs one entry in sys.meta_path. When torch has been imported the agent is built and its
hooks are installed; when a framework is imported later, its adapter wraps what it needs. Nothing is
opened before the first record: launchers, compile workers and data loaders import torch, too.
Every Python that the command starts pays for importing this file, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

_agent = None
_watched = {}  # name of a module: callback
_finder = None


def agent():
    """The agent of this process; None when it is not traced or torch is not there yet."""
    return _agent


class _Loader:
    """Loads as the module's own loader does, then calls back. Leaves no trace in the module."""

    def __init__(self, loader, callback):
        self._loader = loader
        self._callback = callback

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _call(self._callback, module)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        callback = _watched.pop(name, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is None:
                continue
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Loader(spec.loader, callback)
            return spec
        _watched[name] = callback  # not there now; a later path may have it
        return None


def _call(callback, module) -> None:
    try:
        callback(module)
    except Exception as error:  # capture must never stop the program
        print(f"ttrace: {module.__name__} is not captured: {error!r}", file=sys.stderr)


def after_import(name: str, callback) -> None:
    """Calls callback(module) once, as soon as the module `name` has been imported."""
    global _finder
    if name in sys.modules:
        _call(callback, sys.modules[name])
        return
    _watched[name] = callback
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)


def arm() -> None:
    """Called once a process, before the program; does nothing without a trace to write."""
    if _finder is None and _agent is None and os.environ.get("TTRACE_OUT"):
        after_import("torch", _on_torch)


def _on_torch(torch) -> None:
    global _agent
    if os.environ.get("TTRACE_EVENTS"):
        from . import events

        events.start(torch, os.environ.get("TTRACE_INVARIANTS"))
        return
    from . import agent as agent_module

    if _agent is None:
        _agent = agent_module.start(torch)
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """A child of a recording process shares its writer and must not write; others start afresh."""
    if _agent is not None and _agent.opened:
        _agent.fall_silent()


def in_data_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None
