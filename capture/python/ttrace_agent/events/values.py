# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as typed values, each distinct one described once.

A call costs a key: a tuple of what the description depends on, made by one small function a type.
Only a key that is new is described: {"int": 3}, {"torch.FloatTensor": {...}}, {"list": [1, 2]},
{"torch.nn.modules.linear.Linear": {"in_features": 16, ...}}. No code of the program runs for it: of
objects the attributes count that lie in them or their classes as plain values, and of containers
what JSON can hold. Nothing is iterated that is not a list, a tuple, a dict or a set.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Dict, List, Tuple

from . import encoding
from .stream import NOTHING, Stream

KEYS_KEPT = 65536  # a program with ever new values must not grow
LONGEST = 256  # containers with more members are named only
LONGEST_TEXT = 4096
DEPTH = 4

_PLAIN = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (list, tuple, dict)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_KINDS = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
          "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
          "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}

Keyer = Callable[[Any], Any]


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
        self._arguments: Dict[Any, int] = {}
        self._chosen: Dict[Any, int] = {}
        self._results: Dict[Any, int] = {}
        self._states: Dict[Any, int] = {}
        self._constants: Dict[type, List[Tuple[str, Any]]] = {}
        self.keyers = _Keyers(self)
        self.arguments = self._make_arguments()
        self.result = self._make_result()

    def after_fork(self) -> None:
        for table in (self._arguments, self._chosen, self._results, self._states):
            table.clear()

    # ---- numbers of descriptions ----

    def _make_arguments(self) -> Callable[[Any, Any], int]:
        keyers, known, define = self.keyers, self._arguments, self._define_arguments

        def arguments(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> int:
            try:
                count = len(args)  # the short ways save a third of the time
                if count == 1:
                    first, = args
                    key: Any = (keyers[type(first)](first),)
                elif count == 2:
                    first, second = args
                    key = (keyers[type(first)](first), keyers[type(second)](second))
                elif count:
                    key = tuple([keyers[type(value)](value) for value in args])
                else:
                    key = ()
                if kwargs:
                    key = (key, tuple(kwargs),
                           tuple([keyers[type(value)](value) for value in kwargs.values()]))
                number = known.get(key)
                return define(key, args, kwargs) if number is None else number
            except Exception:  # objects whose attributes raise
                return NOTHING

        return arguments

    def chosen(self, places: List[bool], wants: Callable[[str], bool]) -> Any:
        """As `arguments`, of some: by position, and further ones by name."""
        keyers, known, define = self.keyers, self._chosen, self._define_arguments
        wanted = [place for place, want in enumerate(places) if want]
        last = len(places)
        rest = wants("*")  # those that have no parameter of their own
        token = object()  # the same values mean something else to another function

        def arguments(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> int:
            try:
                count = len(args)
                few = {place: args[place] for place in wanted if place < count}
                if rest and count > last:
                    few.update(enumerate(args[last:], last))
                key: Any = (token, count, *[keyers[type(value)](value) for value in few.values()])
                if kwargs:
                    kwargs = {name: value for name, value in kwargs.items() if wants(name)}
                    key = (key, tuple(kwargs),
                           tuple([keyers[type(value)](value) for value in kwargs.values()]))
                number = known.get(key)
                if number is None:
                    return define(key, [few.get(place, self) for place in range(count)], kwargs,
                                  known)
                return number
            except Exception:
                return NOTHING

        return arguments

    def _make_result(self) -> Callable[[Any], int]:
        keyers, known, define = self.keyers, self._results, self._define_result

        def result(value: Any) -> int:
            try:
                if type(value) is tuple and len(value) <= LONGEST:
                    key: Any = (0, *[keyers[type(member)](member) for member in value])
                else:
                    key = keyers[type(value)](value)
                number = known.get(key)
                return define(key, value) if number is None else number
            except Exception:
                return NOTHING

        return result

    def _define_arguments(self, key: Any, args: Any, kwargs: Dict[str, Any],
                          table: Any = None) -> int:
        """`self` stands for an argument that is not wanted."""
        return self._remember(self._arguments if table is None else table, key, encoding.sequence([
            encoding.sequence([encoding.NONE if value is self else self.typed(value)
                               for value in args]),
            encoding.mapping([(name, self.typed(value)) for name, value in kwargs.items()])]))

    def _define_result(self, key: Any, value: Any) -> int:
        if type(value) is tuple and len(value) <= LONGEST:
            described = encoding.sequence([self.typed(member) for member in value])
        else:
            described = self.typed(value)
        return self._remember(self._results, key, described)

    def state(self, tensor: Any) -> int:
        """Of what a variable is beside its values."""
        key = self.keyers[type(tensor)](tensor)
        number = self._states.get(key)
        return self._remember(self._states, key, self.typed(tensor)) if number is None else number

    def _remember(self, table: Dict[Any, int], key: Any, described: bytes) -> int:
        if len(table) >= KEYS_KEPT:
            table.clear()
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
        if _fits(value, 0):
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


def _fits(value: Any, depth: int) -> bool:
    """Whether a list, tuple or dict is small and JSON can hold it."""
    if len(value) > LONGEST or depth == DEPTH:
        return False
    if isinstance(value, dict):
        if not _PLAIN.issuperset(map(type, value)):
            return False
        value = value.values()
    kinds = set(map(type, value)) - _PLAIN
    if not kinds:
        return True
    if not all(issubclass(kind, _CONTAINERS) for kind in kinds):
        return False
    return all(_fits(member, depth + 1) for member in value if type(member) not in _PLAIN)


class _Keyers(dict):
    """By type: the function that makes the key of a value."""

    def __init__(self, values: Values):
        super().__init__()
        torch = values._torch
        self._torch = torch
        self._values = values
        self[type(None)] = lambda value: None
        self[str] = lambda value: (str, value)
        for kind in (int, float, bool):
            self[kind] = _of_plain(kind)
        for kind in (torch.Tensor, torch.nn.Parameter):
            self[kind] = _of_tensor(kind)
        for kind in (list, tuple, torch.Size):
            self[kind] = _of_sequence(kind, self)
        self[dict] = _of_dict(self)
        self[torch.dtype] = self[torch.device] = lambda value: value

    def __missing__(self, kind: type) -> Keyer:
        torch = self._torch
        if issubclass(kind, torch.Tensor):
            keyer = _of_subclass(kind, torch)
        elif issubclass(kind, (list, tuple)):
            keyer = _of_sequence(kind, self)
        elif issubclass(kind, dict):
            keyer = _of_dict(self, kind)
        elif issubclass(kind, _FUNCTIONS):
            keyer = _of_function
        elif getattr(kind, "__dictoffset__", 0):
            keyer = _of_object(kind, _PLAIN | {torch.dtype})
        else:
            keyer = lambda value: kind  # noqa: E731
        self[kind] = keyer
        return keyer


def _of_plain(kind: type) -> Keyer:
    return lambda value: (kind, value)


def _of_tensor(kind: type) -> Keyer:
    def key(tensor: Any) -> Any:
        if tensor.is_leaf:
            return (kind, tensor.dtype, tensor.shape, tensor.requires_grad, tensor.grad is None,
                    tensor.device, tensor.layout)
        return (kind, tensor.dtype, tensor.shape, tensor.retains_grad, tensor.device,
                tensor.layout)

    return key


def _of_subclass(kind: type, torch: Any) -> Keyer:
    plain, disabled = _of_tensor(kind), torch._C.DisableTorchFunctionSubclass

    def key(tensor: Any) -> Any:
        with disabled():
            return (kind,) if tensor.is_nested else plain(tensor)

    return key


def _of_sequence(kind: type, keyers: _Keyers) -> Keyer:
    plain, limit = _PLAIN.issuperset, LONGEST

    def key(value: Any) -> Any:
        if not value:
            return (kind, 0)
        types_of = tuple(map(type, value))
        if plain(types_of):
            return (kind, *value, *types_of) if len(value) <= limit else (kind, 1)
        if not _fits(value, 0):
            return (kind, 1)
        return (kind, 2, *[keyers[type(member)](member) for member in value])

    return key


def _of_dict(keyers: _Keyers, kind: type = dict) -> Keyer:
    def key(value: Any) -> Any:
        if len(value) > LONGEST:
            return (kind, 1)
        fits = _fits(value, 0)
        parts: List[Any] = [kind, fits]
        for name, member in value.items():
            of = type(member)
            if of in _PLAIN:
                parts += (type(name), name, of, member) if type(name) in _PLAIN else ()
            elif fits:
                parts += (type(name), name, keyers[of](member))
        return tuple(parts)

    return key


def _of_function(value: Any) -> Any:
    return (type(value), getattr(value, "__module__", None), getattr(value, "__qualname__", None))


def _of_object(kind: type, plain: Any) -> Keyer:
    public: Dict[Any, List[str]] = {}  # by all names that an object has

    def key(value: Any) -> Any:
        members = value.__dict__
        every = tuple(members)
        names = public.get(every)
        if names is None:
            if len(public) > 64:
                public.clear()
            names = public[every] = [name for name in every if not name.startswith("_")]
        parts: List[Any] = [kind]
        for name in names:
            member = members[name]
            of = type(member)
            if of in plain:
                parts += (name, of, member)
        return tuple(parts)

    return key
