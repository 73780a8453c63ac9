# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as typed values, each distinct one described once.

A call costs a key: a tuple of what the description depends on (capture/events/keys.cpp). Only a key
that is new is described: {"int": 3}, {"torch.FloatTensor": {...}}, {"list": [1, 2]},
{"torch.nn.modules.linear.Linear": {"in_features": 16, ...}}. No code of the program runs for it: of
objects the attributes count that lie in them or their classes as plain values, and of containers
what JSON can hold. Nothing is iterated that is not a list, a tuple, a dict or a set.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import encoding, native
from .stream import Stream

KEYS_KEPT = 65536  # a program with ever new values must not grow
BYTES_KEPT = 4 << 20  # of descriptions; their keys are several times as large
CHOSEN_KEPT = 4096  # likewise, of one function
LONGEST = 256  # containers with more members are named only, here and in keys.cpp
LONGEST_TEXT = 4096
DEPTH = 4  # likewise

_PLAIN = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (list, tuple, dict)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_KINDS = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
          "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
          "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}

def name_of(thing: Any) -> str:
    """Dotted name of a function or class, or of the class of an object."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not isinstance(name, str) or not name:
        thing = type(thing)
        module, name = thing.__module__, thing.__qualname__
    plain = not isinstance(module, str) or module in ("builtins", "__builtin__", "")
    return name if plain else f"{module}.{name}"


class Values:
    def __init__(self, stream: Stream, torch: Any):
        self._stream = stream
        self._torch = torch
        self._constants: Dict[type, List[Tuple[str, Any]]] = {}
        self._arguments: Dict[Any, int] = {}  # numbers of descriptions, by key
        self._results: Dict[Any, int] = {}
        self._states: Dict[Any, int] = {}
        self._kept: Dict[int, int] = {}  # bytes of descriptions, by id of the table
        self._tables = [self._arguments, self._results, self._states]
        native.use_torch(torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device,
                         _key_of_subclass(torch), torch._C._is_torch_function_mode_enabled,
                         torch._C.DisableTorchFunction)
        self.arguments = native.Describer(self._arguments, self._define_arguments)
        self.result = native.Describer(self._results, self._define_result)

    def after_fork(self) -> None:
        for table in self._tables:
            table.clear()

    # ---- numbers of descriptions ----

    def chosen(self, places: List[bool], wants: Callable[[str], bool]) -> Any:
        """As `arguments`, of some: by position, and further ones by name."""
        wanted = (*places, wants("*"))  # the last: those that have no parameter of their own
        last = len(places)
        table: Dict[Any, int] = {}  # the same values mean something else to another function
        self._tables.append(table)

        def define(key: Any, args: Tuple[Any, ...], kwargs: Optional[Dict[str, Any]]) -> int:
            few = [value if wanted[min(place, last)] else self for place, value in enumerate(args)]
            named = {name: value for name, value in (kwargs or {}).items() if wants(name)}
            return self._remember(table, key, self._call(few, named), CHOSEN_KEPT)

        return native.Describer(table, define, wanted, wants)

    def _define_arguments(self, key: Any, args: Any, kwargs: Any) -> int:
        return self._remember(self._arguments, key, self._call(args, kwargs or {}))

    def _call(self, args: Any, kwargs: Dict[str, Any]) -> bytes:
        """`self` stands for an argument that is not wanted."""
        return encoding.sequence([
            encoding.sequence([encoding.NONE if value is self else self.typed(value)
                               for value in args]),
            encoding.mapping([(name, self.typed(value)) for name, value in kwargs.items()])])

    def _define_result(self, key: Any, value: Any) -> int:
        if type(value) is tuple and len(value) <= LONGEST:
            described = encoding.sequence([self.typed(member) for member in value])
        else:
            described = self.typed(value)
        return self._remember(self._results, key, described)

    def state(self, tensor: Any) -> int:
        """Of what a variable is beside its values."""
        described = self.typed(tensor)
        number = self._states.get(described)
        return self._remember(self._states, described, described) if number is None else number

    def _remember(self, table: Dict[Any, int], key: Any, described: bytes,
                  most: int = KEYS_KEPT) -> int:
        self._kept[id(table)] = self._kept.get(id(table), 0) + len(described)
        if len(table) >= most or self._kept[id(table)] > BYTES_KEPT:
            table.clear()
            self._kept[id(table)] = len(described)
        number = table[key] = self._stream.define(described)
        return number

    # ---- descriptions ----

    def typed(self, value: Any) -> bytes:
        kind = type(value)
        if isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        if kind in _PLAIN:
            if kind is str and len(value) > LONGEST_TEXT:
                value = value[:LONGEST_TEXT]
            return encoding.mapping([(kind.__name__, encoding.plain(value))])
        if isinstance(value, self._torch.dtype):
            return encoding.mapping([("torch.dtype", encoding.string(str(value)))])
        if isinstance(value, self._torch.device):
            members = [("index", encoding.plain(value.index)),
                       ("type", encoding.string(value.type))]
            return encoding.mapping([("torch.device", encoding.mapping(members))])
        if isinstance(value, _CONTAINERS):
            return self._container(value)
        if isinstance(value, _FUNCTIONS):
            return encoding.mapping([(name_of(value), encoding.mapping([]))])
        return encoding.mapping([(name_of(kind), self._attributes(value))])

    def _container(self, value: Any) -> bytes:
        kind = type(value)
        name = kind.__name__ if kind in (list, tuple, dict) else name_of(kind)
        if _fits(value):
            return encoding.mapping([(name, encoding.plain(value))])
        members: List[Tuple[str, bytes]] = []
        if isinstance(value, dict):
            members = [(key, encoding.plain(member)) for key, member in value.items()
                       if type(key) is str and type(member) in _PLAIN][:LONGEST]
        return encoding.mapping([(name, encoding.mapping(members))])

    def constants(self, kind: type) -> List[Tuple[str, Any]]:
        """Public plain attributes of a class and its bases."""
        found = self._constants.get(kind)
        if found is None:
            members: Dict[str, Any] = {}
            for base in reversed(kind.__mro__):
                members.update({name: value for name, value in vars(base).items()
                                if not name.startswith("_")})
            found = self._constants[kind] = [(name, value) for name, value in members.items()
                                             if type(value) in _PLAIN]
        return found

    def _attributes(self, value: Any) -> bytes:
        members = dict(self.constants(type(value)))
        members.update({name: member for name, member in getattr(value, "__dict__", {}).items()
                        if isinstance(name, str) and not name.startswith("_")})
        described = []
        for name, member in sorted(members.items()):
            if type(member) in _PLAIN:
                short = member[:LONGEST_TEXT] if type(member) is str else member
                described.append((name, encoding.plain(short)))
            elif isinstance(member, self._torch.dtype):
                described.append((name, encoding.string(str(member))))
        return encoding.mapping(described)

    def _tensor(self, tensor: Any) -> bytes:
        with self._torch._C.DisableTorchFunctionSubclass():
            dtype = str(tensor.dtype)
            short = dtype.replace("torch.", "")
            device = tensor.device.type
            place = "" if device == "cpu" else f"{device}."
            kind = f"torch.{place}{_KINDS.get(short, short)}Tensor"
            if isinstance(tensor, self._torch.nn.Parameter):
                kind = "torch.nn.Parameter"
            leaf = tensor.is_leaf
            flags = ((encoding.REQUIRES_GRAD if tensor.requires_grad else 0)
                     | (encoding.IS_LEAF if leaf else 0)
                     | (encoding.HAS_GRAD if leaf and tensor.grad is not None else 0)
                     | (encoding.RETAINS_GRAD if not leaf and tensor.retains_grad else 0)
                     | (encoding.IS_NESTED if tensor.is_nested else 0)
                     | (encoding.IS_QUANTIZED if tensor.is_quantized else 0))
            shape = () if tensor.is_nested else tuple(int(extent) for extent in tensor.shape)
            return encoding.tensor(kind, dtype, device, str(tensor.layout), flags,
                                   tensor.element_size(), shape)


def _fits(value: Any) -> bool:
    """Whether a list, tuple or dict is small and JSON can hold it."""
    return _left(value, 0, LONGEST) >= 0


def _left(value: Any, depth: int, left: int) -> int:
    """Of the members that it may have in all; negative: it does not fit."""
    left -= len(value)
    if left < 0 or depth == DEPTH:
        return -1
    if isinstance(value, dict):
        if not _PLAIN.issuperset(map(type, value)):
            return -1
        value = value.values()
    for member in value:
        if type(member) not in _PLAIN:
            left = _left(member, depth + 1, left) if isinstance(member, _CONTAINERS) else -1
            if left < 0:
                break
    return left


def _key_of_subclass(torch: Any) -> Callable[[Any], Any]:
    """For tensors that may run code of their own."""
    disabled = torch._C.DisableTorchFunctionSubclass

    def key(tensor: Any) -> Any:
        with disabled():
            kind = type(tensor)
            if tensor.is_nested:
                return (kind,)
            leaf = tensor.is_leaf
            return (kind, tensor.dtype, tensor.shape, tensor.device, tensor.layout, leaf,
                    tensor.requires_grad if leaf else tensor.retains_grad,
                    leaf and tensor.grad is None)

    return key
