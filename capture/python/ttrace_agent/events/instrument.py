# SPDX-License-Identifier: Apache-2.0
"""Which functions are replaced, and where: in the modules and classes of torch, once.

A function that several modules have imported gets one wrapper, so that identity still tells. What
is imported later is treated when its import has ended, and no call is recorded while importlib is
on the stack: importing a module of torch calls thousands of functions that say nothing about the
training.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Dict, List, Optional, Set

from . import wrappers
from .values import name_of

# Compilers and tracers (they call torch's functions on tensors that have no values), dispatch that
# runs around every call, and pieces that only serve printing, saving or importing.
SKIPPED = (
    "torch._C", "torch._jit", "torch.jit", "torch.fx", "torch._dynamo", "torch._inductor",
    "torch._functorch", "torch._subclasses", "torch._higher_order_ops",
    "torch._sources", "torch._tensor_str", "torch.overrides", "torch._ops.OpOverload",
    "torch._ops._OpNamespace", "torch._ops.HigherOrderOperator", "torch._ops.OperatorBase",
    "torch._ops.DispatchKey", "torch._ops.dl_open_guard", "torch._ops._Ops",
    "torch._ops.PyOperator", "torch.autograd", "torch.cuda._is_compiled",
    "torch.cuda.is_available", "torch.utils.data._utils", "torch.get_default_dtype",
    "torch.nn.modules.module.Module._apply", "torch.nn.modules.module.Module._call_impl",
    "torch.nn.modules.module.Module._wrapped_call_impl", "torch.export", "torch._export",
    "torch.onnx", "torch._guards", "torch._logging", "torch._library", "torch.library",
    "torch._refs", "torch._prims", "torch._decomp", "torch.package", "torch.testing",
    "torch._meta_registrations", "torch._lazy", "torch.hub", "torch.serialization",
    "torch.storage", "torch._weights_only_unpickler", "torch.profiler", "torch.utils._pytree",
    "torch.utils._cxx_pytree", "torch.utils._python_dispatch", "torch.utils._config_module",
    "torch.utils._ordered_set", "torch.utils._sympy", "torch.utils._traceback",
    "torch.utils._device", "torch.utils.weak", "torch.utils._debug_mode",
    "torch.utils._import_utils", "torch.utils.cpp_extension", "torch.utils.tensorboard",
    "torch.multiprocessing.reductions", "torch.multiprocessing.queue", "torch._vendor",
    "torch.distributed.elastic", "torch.distributed.rpc", "torch.distributed.tensor._",
    "torch.distributed.tensor.placement_types", "torch.distributed._pycute", "torch._check",
    "torch.distributed._mesh_layout", "torch.distributed._functional_collectives",
    "torch.distributed._local_tensor", "torch.distributed.device_mesh", "torch.utils._inspect",
    "torch._ops.mode_stack_state", "torch._ops._get_dispatch_mode", "torch._ops._ModeStack",
    "torch._custom_op", "torch._compile", "torch._linalg_utils", "torch._lowrank",
    "torch.compiler.is_dynamo_compiling", "torch.masked", "torch.types", "torch.version",
    "torch._environment", "torch._utils_internal", "torch._thread_safe_fork", "torch._classes",
)
# Of the names with two underscores; the last is how unpickled and copied modules begin.
METHODS = ("__init__", "__call__", "__enter__", "__exit__", "__setstate__")

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def skipped(name: str) -> bool:
    return not name.startswith("torch.") or name.startswith(SKIPPED)


class Instrument:
    def __init__(self, wrap: Callable[[Any, str, Any], Optional[Any]],
                 is_special: Callable[[str], bool]):
        """`wrap(function, its name, its owner)`: what takes its place; None: nothing does.
        `is_special`: treat a name although its like is skipped."""
        self._wrap = wrap
        self._is_special = is_special
        self._modules: Set[str] = set()
        self._classes: Set[type] = set()
        self._wrappers: Dict[int, Any] = {}  # by id of the function, which the wrapper keeps alive
        self._defaulted: List[types.FunctionType] = []  # with functions among their defaults

    def torch_modules(self, at_once: bool = False) -> None:
        """All modules of torch that are loaded and have not been treated; `at_once`: torch, too,
        whose import only has to return."""
        for name in [name for name in list(sys.modules) if name == "torch"
                     or name.startswith("torch.")]:
            if name in self._modules:
                continue
            module = sys.modules[name]
            spec = getattr(module, "__spec__", None)
            if not at_once and spec is not None and getattr(spec, "_initializing", False):
                continue  # another thread is importing it
            self._modules.add(name)
            if isinstance(module, types.ModuleType):
                self._module(module)
        self._replace_defaults()

    def _module(self, module: types.ModuleType) -> None:
        for key, value in list(vars(module).items()):
            kind = type(value)  # isinstance would run code of some objects
            if kind is types.FunctionType or kind is types.BuiltinFunctionType:
                self._replace(module, key, value)
            elif issubclass(kind, type):
                self._class(value)

    def _class(self, kind: type) -> None:
        if kind in self._classes:
            return
        self._classes.add(kind)
        if skipped(f"{kind.__module__}.{kind.__qualname__}"):
            return
        for key, value in list(vars(kind).items()):
            if key.startswith("__") and key.endswith("__") and key not in METHODS:
                continue
            if type(value) is types.FunctionType:
                self._replace(kind, key, value)
            elif issubclass(type(value), type):
                self._class(value)

    def _replace_defaults(self) -> None:
        """`activation=F.relu` is compared with F.relu later on."""
        known = self._wrappers
        for function in self._defaulted:
            for each in (function, known.get(id(function), function)):
                if each.__defaults__:
                    each.__defaults__ = tuple(known.get(id(value), value)
                                              for value in each.__defaults__)
                for name, value in (each.__kwdefaults__ or {}).items():
                    each.__kwdefaults__[name] = known.get(id(value), value)
        self._defaulted.clear()

    def _replace(self, owner: Any, key: str, function: Any) -> None:
        inner = function  # of decorators, what they decorate
        while type(inner) is types.FunctionType:
            defaults = (*(inner.__defaults__ or ()), *(inner.__kwdefaults__ or {}).values())
            if any(type(value) in FUNCTIONS for value in defaults):
                self._defaulted.append(inner)
            inner = inner.__dict__.get("__wrapped__")
        if wrappers.ORIGINAL in getattr(function, "__dict__", ()):
            return
        if key.startswith("__") and key not in METHODS:
            return
        wrapper = self._wrappers.get(id(function))
        if wrapper is None:
            name = name_of(function)
            wanted = not skipped(name) or self._is_special(name)
            wrapper = self._wrap(function, name, owner) if wanted else None
            if wrapper is None:
                return
            self._wrappers[id(function)] = wrapper
            if type(function) is types.BuiltinFunctionType and isinstance(owner, types.ModuleType):
                # Where pickle finds it: builtins are found in ways of their own.
                wrapper.__module__, wrapper.__qualname__ = owner.__name__, key
        try:
            setattr(owner, key, wrapper)
        except (AttributeError, TypeError):  # classes made in C
            pass

    def method(self, kind: type, key: str, wrap: Callable[[Any, type], Any]) -> None:
        """One method of a class of the program, as it is found in the class itself."""
        function = vars(kind).get(key)
        if isinstance(function, types.FunctionType) and not hasattr(function, wrappers.ORIGINAL):
            setattr(kind, key, wrap(function, kind))


# ---- imports ----

_IMPORT = '''
def _find_and_load(name, import_):
    before(name)
    try:
        return find_and_load(name, import_)
    finally:
        after(name)
'''


def watch_imports(before: Callable[[str], None], after: Callable[[str], None]) -> None:
    """Calls both around every import that has something to load; imports in it are nested.

    The code claims importlib's file name, so that Python cuts it out of the traceback of a failed
    import as it cuts importlib itself.
    """
    bootstrap: Any = sys.modules["importlib._bootstrap"]
    names = {"find_and_load": bootstrap._find_and_load, "before": before, "after": after}
    exec(compile(_IMPORT, "<frozen importlib._bootstrap>", "exec"), names)
    bootstrap._find_and_load = names["_find_and_load"]
