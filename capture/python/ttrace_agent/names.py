# SPDX-License-Identifier: Apache-2.0
"""One name for one module in every layout, found without knowing the program.

A root is a module that is called while no other one runs. The first one with parameters is the
model, "@root", and its modules are called as named_modules() calls them, without the segments of
wrappers and with global layer and expert numbers. Further roots are named after their class, except
that chunks of one model (virtual pipeline stages) share the model's names.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import adapters

ROOT = "@root"


class ModuleInfo:
    """What is known of one module; lives as long as the agent, holds the module weakly."""

    __slots__ = ("ref", "name", "raw_name", "root", "at_root", "numbered", "wraps", "nested",
                 "passes_on", "keywords", "history", "calls", "returned_tensor", "kind")

    def __init__(self, module: Any, name: str, raw_name: str, root: "Root"):
        self.ref = weakref.ref(module)
        self.name = name
        self.raw_name = raw_name
        self.root = root
        self.at_root = name == root.name  # the root itself, or what it wraps
        # In or below a numbered layer: only one chunk of a model has it.
        self.numbered = any(part.isdigit() for part in name.split("."))
        self.wraps = False  # only a shell around a child of the same name
        self.nested = False  # such a child
        self.passes_on = adapters.passes_on(module)
        self.keywords: Optional[bool] = None  # whether it is called with keyword arguments
        self.history: List[Any] = []  # its forward calls in this iteration (calls.py)
        self.calls = 0
        self.returned_tensor = False
        self.kind = adapters.class_of(module)


class ParameterInfo(NamedTuple):
    ref: Any
    name: str
    raw_name: str
    layout: str
    part: Optional[Tuple[int, int]] = None  # first element and count, of several in one tensor

    def of(self, tensor: Any) -> Any:
        """What is this parameter's own in a tensor like the one that holds it."""
        return tensor if self.part is None else tensor.narrow(0, *self.part)


class Root:
    """A tree of modules that the program calls as a whole."""

    def __init__(self, module: Any, name: str):
        self.ref = weakref.ref(module)
        self.name = name
        self.parameters: List[ParameterInfo] = []
        self.modules: List[ModuleInfo] = []
        self.microbatches = 0  # calls in this iteration
        self.context: Any = None  # of the latest call (calls.py)
        self.values_recorded = -1  # iteration
        self.initialised = False
        self.walked = -1  # iteration
        self.lazy = False  # some parameters get their shapes in the first forward pass

    def take_over(self, inner: List["Root"]) -> None:
        """Goes on counting where these roots, now parts of this one, have stopped."""
        self.microbatches = max(root.microbatches for root in inner)
        self.context = inner[-1].context
        known = {id(info.ref()) for root in inner if root.initialised for info in root.parameters}
        self.initialised = all(id(info.ref()) in known for info in self.parameters)


class Walked(NamedTuple):
    module: Any
    name: str  # "" for the root
    raw_name: str
    wraps: bool
    nested: bool


def walk(root: Any) -> Iterator[Walked]:
    """named_modules() with canonical names: each module once, under its first name."""
    seen: Set[int] = set()

    def visit(module: Any, owners: List[Any], name: str, raw: str, nested: bool,
              at_top: bool) -> Iterator[Walked]:
        seen.add(id(module))
        inner = owners + [module]
        children = [(key, child, adapters.segment(inner, key, child, at_top))
                    for key, child in module._modules.items() if child is not None]
        # What runs compiled is never seen: the wrapper speaks for it.
        wraps = not adapters.is_compiled(module) and any(
            segment == "" and not _hidden(child) for _, child, segment in children)
        yield Walked(module, name, raw, wraps, nested)
        for key, child, segment in children:
            if id(child) not in seen:
                yield from visit(child, inner, _join(name, segment), _join(raw, key),
                                 segment == "", at_top and segment == "")

    yield from visit(root, [], "", "", False, True)


def _hidden(module: Any) -> bool:
    """module.compile() compiles the hooks away; an OptimizedModule still has its own."""
    return adapters.is_compiled(module) and type(module).__name__ != "OptimizedModule"


def _join(prefix: str, segment: str) -> str:
    return f"{prefix}.{segment}" if prefix and segment else prefix or segment


class Names:
    def __init__(self, agent: Any, torch: Any):
        self._agent = agent
        self._unimplemented = torch.nn.Module.forward
        self._is_lazy = torch.nn.parameter.is_lazy
        self._modules: Dict[int, ModuleInfo] = {}
        self._parameters: Dict[int, List[ParameterInfo]] = {}
        self._locations: Dict[Any, str] = {}
        self.roots: List[Root] = []
        self.chunked = False  # several roots are chunks of one model

    def find(self, module: Any) -> Optional[ModuleInfo]:
        info = self._modules.get(id(module))
        return info if info is not None and info.ref() is module else None

    def held_by(self, tensor: Any) -> List[ParameterInfo]:
        """The parameters that a module's tensor stands for: one, or the pieces of several."""
        found = self._parameters.get(id(tensor), [])
        return found if found and found[0].ref() is tensor else []

    def begin_iteration(self) -> None:
        for module_id, info in list(self._modules.items()):
            info.history = []
            if info.ref() is None:
                del self._modules[module_id]
        for root in self.roots:
            root.microbatches = 0
            root.context = None

    # ---- roots ----

    def discover(self, module: Any) -> Root:
        """Names the tree below a module that is called as a root for the first time."""
        found = list(walk(module))
        inner = self._take_roots_in(found)
        name = self._root_name(module, found)
        root = Root(module, name)
        self.chunked = self.chunked or any(other.name == name for other in self.roots)
        self.roots.append(root)
        self._enter(root, found)
        if inner:
            root.take_over(inner)
        return root

    def _take_roots_in(self, found: List[Walked]) -> List[Root]:
        """Roots that turn out to be parts: of a wrapper put on after a first call, say."""
        modules = {id(entry.module) for entry in found}
        inner = [root for root in self.roots if id(root.ref()) in modules]
        self.roots = [root for root in self.roots if root not in inner]
        return inner

    def refresh(self, root: Root, iteration: int) -> None:
        """Modules and parameters come and go between iterations (adapters, lazy modules)."""
        module = root.ref()
        if (root.lazy or root.walked != iteration) and module is not None:
            root.walked = iteration
            self._enter(root, list(walk(module)))

    def late(self, module: Any, parent: ModuleInfo, iteration: int) -> ModuleInfo:
        """A module that was called but not found: it is new, or in no module's attributes."""
        self.refresh(parent.root, iteration)
        info = self.find(module)
        if info is None:
            owner = parent.ref()
            children = owner._modules.items() if owner is not None else ()
            keys = [key for key, child in children if child is module]
            name = _join("" if parent.name == ROOT else parent.name,
                         keys[0] if keys else type(module).__name__)
            info = self._modules[id(module)] = ModuleInfo(module, name, name, parent.root)
        return info

    def _root_name(self, module: Any, found: List[Walked]) -> str:
        own = {name for name, _, _, _ in _parameters_of(found, "")}
        model = [root for root in self.roots if root.name == ROOT]
        if own and not model:
            return ROOT
        if own and _innermost(found) is self._innermost_class(model[0]):
            taken = {info.name for root in model for info in root.parameters}
            if not own & taken:
                return ROOT
        name = base = _innermost(found).__name__
        number = 1
        while any(root.name == name for root in self.roots):
            name, number = f"{base}_{number}", number + 1
        return name

    def _innermost_class(self, root: Root) -> Any:
        for info in root.modules:
            if info.at_root and not info.wraps:
                return info.kind
        return None

    def _enter(self, root: Root, found: List[Walked]) -> None:
        prefix = "" if root.name == ROOT else root.name
        root.modules = []
        for entry in found:
            name = _join(prefix, entry.name) or ROOT
            info = self.find(entry.module)
            if info is None or info.root is not root or info.name != name:
                info = ModuleInfo(entry.module, name, entry.raw_name or name, root)
                self._modules[id(entry.module)] = info
            info.wraps, info.nested = entry.wraps, entry.nested
            root.modules.append(info)
            if adapters.is_compiled(entry.module):
                self._agent.note("compiled", name, "what happens inside it is not seen")
        root.parameters = []
        root.lazy = False
        for name, raw, parameter, module in _parameters_of(found, prefix):
            if self._is_lazy(parameter):
                root.lazy = True
                continue
            held = self._pieces(parameter, raw, found, prefix)
            if not held:
                held = [ParameterInfo(weakref.ref(parameter), name, raw,
                                      self._layout(name, parameter, module))]
            self._parameters[id(parameter)] = held
            root.parameters.extend(held)

    def _layout(self, name: str, parameter: Any, module: Any) -> str:
        try:
            return adapters.parameter_layout(parameter, module)
        except Exception as error:  # attributes of another version of a framework
            self._agent.note("layout unknown", name, repr(error))
            return ""

    def _pieces(self, parameter: Any, raw: str, found: List[Walked],
                prefix: str) -> List[ParameterInfo]:
        """Of the parameters that a wrapper has joined; [] where `parameter` is one itself."""
        try:
            pieces = adapters.pieces(parameter)
        except Exception as error:
            self._agent.note("layout unknown", raw, repr(error))
            return []
        names = {id(entry.module): entry.name for entry in found} if pieces else {}
        return [ParameterInfo(weakref.ref(parameter),
                              _join(_join(prefix, names[id(piece.module)]), piece.key), raw,
                              piece.layout, piece.part)
                for piece in pieces if id(piece.module) in names]

    # ---- tables of rank.json ----

    def module_table(self, root: Root) -> Dict[str, Any]:
        """All modules, whether or not they are called; of modules of one name the innermost."""
        table = {}
        for info in root.modules:
            module = info.ref()
            if module is not None:
                table[info.name] = {"class": info.kind.__name__,
                                    "forward": self._location(info.kind),
                                    "expected": self._has_forward(module),
                                    "calls": 0, "returned_tensor": False}
        return table

    def call_table(self) -> Dict[str, Any]:
        """What of the rows has changed: the calls seen so far, chunks of a model added up."""
        table: Dict[str, Any] = {}
        for root in self.roots:
            for info in root.modules:
                if not info.wraps:
                    row = table.setdefault(info.name, {"calls": 0, "returned_tensor": False})
                    row["calls"] += info.calls
                    row["returned_tensor"] = row["returned_tensor"] or info.returned_tensor
        return table

    def parameter_table(self, root: Root) -> Dict[str, Any]:
        table = {}
        for info in root.parameters:
            parameter = info.ref()
            if parameter is None:
                continue
            local, _ = adapters.local_part(parameter)
            value = self._agent.recorder.representable(info.of(
                parameter if local is None else local))
            if value is None:
                continue  # its values are not recorded either, which the recorder says
            row = {"shape": list(value.shape),
                   "dtype": str(value.dtype).replace("torch.", ""),
                   "trainable": bool(parameter.requires_grad)}
            table[info.name] = dict(row, layout=json.loads(info.layout)) if info.layout else row
        return table

    def _has_forward(self, module: Any) -> bool:
        return ("forward" in vars(module)
                or getattr(type(module), "forward", None) is not self._unimplemented)

    def _location(self, kind: Any) -> str:
        text = self._locations.get(kind)
        if text is None:
            text = self._locations[kind] = _location_of(getattr(kind, "forward", None))
        return text


def _innermost(found: List[Walked]) -> Any:
    """The class of the model inside its wrappers."""
    return next(adapters.class_of(entry.module) for entry in found
                if entry.name == "" and not entry.wraps)


def _parameters_of(found: List[Walked], prefix: str) -> Iterator[Tuple[str, str, Any, Any]]:
    """(name, raw name, parameter, its module), each parameter once, under its first name."""
    seen: Set[int] = set()
    for entry in found:
        for key, parameter in entry.module._parameters.items():
            if parameter is None or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            name = _join(_join(prefix, entry.name), key)
            raw_name = _join(entry.raw_name, key)
            yield adapters.parameter_name(name, parameter), raw_name, parameter, entry.module


def _location_of(function: Any) -> str:
    """"torch/nn/modules/linear.py:130", shortened by where Python found it."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return ""
    path = code.co_filename
    places = [os.path.abspath(entry or ".") + os.sep for entry in sys.path]
    place = max((place for place in places if path.startswith(place)), key=len, default="")
    return f"{path[len(place):]}:{code.co_firstlineno}"
