# SPDX-License-Identifier: Apache-2.0
"""Values as bytes: what JSON can hold, and the metadata of a tensor, each after a one-byte tag."""

from __future__ import annotations

import struct
from typing import Any, Iterable, List, Tuple

_INT = struct.Struct("<q")
_REAL = struct.Struct("<d")
_COUNT = struct.Struct("<I")
_TENSOR = struct.Struct("<3I")  # flags, bytes of an element, dimensions
NONE, TRUE, FALSE = b"n", b"t", b"f"

# Flags of a tensor.
REQUIRES_GRAD, IS_LEAF, HAS_GRAD, RETAINS_GRAD, IS_NESTED, IS_QUANTIZED = 1, 2, 4, 8, 16, 32


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return _COUNT.pack(len(data)) + data


def string(text: str) -> bytes:
    return b"s" + _text(text)


def sequence(members: List[bytes]) -> bytes:
    return b"l" + _COUNT.pack(len(members)) + b"".join(members)


def mapping(members: Iterable[Tuple[str, bytes]]) -> bytes:
    parts = [_text(name) + value for name, value in members]
    return b"o" + _COUNT.pack(len(parts)) + b"".join(parts)


def tensor(kind: str, dtype: str, device: str, layout: str, flags: int, itemsize: int,
           shape: Iterable[int]) -> bytes:
    extents = list(shape)
    return b"".join([b"T", _text(kind), _text(dtype), _text(device), _text(layout),
                     _TENSOR.pack(flags, itemsize, len(extents)),
                     struct.pack(f"<{len(extents)}q", *extents)])


def plain(value: Any) -> bytes:
    """What json.dumps takes; raises TypeError for anything else."""
    if value is None:
        return NONE
    if value is True or value is False:
        return TRUE if value else FALSE
    if isinstance(value, str):
        return string(value)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return b"d" + _REAL.pack(value)
    if isinstance(value, (list, tuple)):
        return sequence([plain(member) for member in value])
    if isinstance(value, dict):
        return mapping([(_key(name), plain(member)) for name, member in value.items()])
    raise TypeError(type(value).__name__)


def _key(name: Any) -> str:
    """As json.dumps spells names that are no strings."""
    if isinstance(name, str):
        return name
    if name is None or isinstance(name, (bool, int, float)):
        return {None: "null", True: "true", False: "false"}.get(name, str(name))
    raise TypeError(type(name).__name__)


def _integer(value: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return b"i" + _INT.pack(value)
    try:
        return b"d" + _REAL.pack(float(value))
    except OverflowError:
        return string(str(value))
