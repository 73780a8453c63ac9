# SPDX-License-Identifier: Apache-2.0
"""The models of a program and the names of their parameters.

A model is a module that lies in no other and has parameters. Modules are noted when they are made,
weakly. A model is called what the program calls it, if a variable or an attribute of the functions
that are running says so, else "model"; further ones of a name get a number. Inside it names are
those of named_parameters(), without the segments of wrappers.
"""

from __future__ import annotations

import os
import inspect
import sys
import types
import weakref
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from .. import names

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Models:
    def __init__(self, torch: Any):
        self._torch = torch
        self._folder = os.path.dirname(os.path.abspath(torch.__file__))
        self._made: List[Any] = []  # weak references to modules
        self._most = 1024  # of them before the dead ones are dropped
        self.fresh = False  # some were made since the models were looked for
        self.changes = 0  # how often they were
        self._names: Dict[int, Tuple[Any, str]] = {}  # models, by id
        self._taken: Set[str] = set()
        self._parameters: Dict[int, Tuple[Any, str]] = {}
        self._parts: Any = weakref.WeakSet()  # modules that lie in others
        self._roots: List[Any] = []

    def made(self, module: Any) -> None:
        if len(self._made) > self._most:
            self._made = [reference for reference in self._made if reference() is not None]
            self._most = 2 * len(self._made) + 1024
        self._made.append(weakref.ref(module))
        self.fresh = True

    def is_part(self, module: Any) -> bool:
        return module in self._parts

    def name_of(self, parameter: Any) -> Optional[str]:
        found = self._parameters.get(id(parameter))
        if found is None or found[0]() is not parameter:
            self.refresh()
            found = self._parameters.get(id(parameter))
        return found[1] if found is not None and found[0]() is parameter else None

    def parameters(self) -> Iterator[Tuple[Any, str]]:
        if self.fresh:
            self.refresh()
        for reference, name in list(self._parameters.values()):
            parameter = reference()
            if parameter is not None:
                yield parameter, name

    def roots(self) -> List[Any]:
        """As Mesh wants them."""
        found = []
        for module in filter(None, (reference() for reference in self._roots)):
            found.append(types.SimpleNamespace(
                parameters=[types.SimpleNamespace(ref=weakref.ref(parameter))
                            for parameter in module.parameters()],
                modules=[types.SimpleNamespace(ref=weakref.ref(part))
                         for part in module.modules()]))
        return found

    # ---- looking for models ----

    def refresh(self) -> None:
        self.fresh = False
        self.changes += 1
        made = [module for module in (reference() for reference in self._made)
                if module is not None]
        self._made = [weakref.ref(module) for module in made]
        children = {id(child) for module in made for child in module._modules.values()
                    if child is not None}
        for module in made:
            if id(module) in children:
                self._parts.add(module)
        tops = [module for module in made if id(module) not in children and _has_parameters(module)]
        self._parameters = {}
        self._roots = [weakref.ref(module) for module in tops]
        for module in tops:
            self._enter(module)

    def _enter(self, module: Any) -> None:
        walked = list(names.walk(module))
        wrapped = [entry.module for entry in walked if entry.name == ""]
        prefix = self._model_name(wrapped)
        for name, _, parameter, _ in names._parameters_of(walked, prefix):
            self._parameters.setdefault(id(parameter), (weakref.ref(parameter), name))

    def _model_name(self, wrapped: List[Any]) -> str:
        """`wrapped`: the module and what it only wraps; they share a name."""
        for module in wrapped:
            known = self._names.get(id(module))
            if known is not None and known[0]() is module:
                name = known[1]
                break
        else:
            name = self.unique(self.variable(wrapped[::-1], "model"))
        for module in wrapped:
            self._names[id(module)] = (weakref.ref(module), name)
        return name

    def unique(self, name: str) -> str:
        base, number = name, 1
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def variable(self, things: List[Any], default: str) -> str:
        """What the running functions of the program call the first of `things` that has a name."""
        frames = list(self._frames())
        for thing in things:
            for variables in frames:
                for name, value in variables.items():
                    if value is thing and isinstance(name, str) and name != "self":
                        return name
        for thing in things:
            for variables in frames:
                for name, value in getattr(variables.get("self"), "__dict__", {}).items():
                    if value is thing:
                        return name
        return default

    def _frames(self) -> Iterator[Dict[str, Any]]:
        """Variables of the functions that are running, the innermost first."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith((self._folder, _PACKAGE, "<")) or path == "<stdin>":
                variables = frame.f_locals
                yield dict(variables)
                # Before Python 3.13 the frame keeps what it gave, and all that is in it alive. Who
                # else holds it has called locals().
                if (sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
                        and sys.getrefcount(variables) <= 3):
                    variables.clear()
            frame = frame.f_back


def _has_parameters(module: Any) -> bool:
    return next(iter(module.parameters()), None) is not None
