# SPDX-License-Identifier: Apache-2.0
"""The C interface of capture/ttrace.h through ctypes: describe a tensor, hand over its address.

A call costs a few microseconds because nothing is built for it: names and shapes are converted once
and kept, and the ttrace_tensor is packed by one struct call into a buffer of the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from typing import Any, Dict, Optional, Sequence, Tuple

# Values of enum ttrace_phase, ttrace_kind and ttrace_flag.
PHASES = {"param": 0, "forward": 1, "recompute": 2, "backward": 3, "grad": 4, "step": 5, "comm": 6}
KINDS = {"full": 0, "stats": 1, "hash": 2}
TRAINABLE, ROOT_INPUT, GLUE, NO_GRADIENT = 1, 2, 4, 8
NOT_ALIAS = -1
CURRENT = -2  # as a micro-batch: that of begin_microbatch
HOST, DEVICE, ANYWHERE = 0, 1, 2  # enum ttrace_device
# enum ttrace_collective_flag, and what collectives_wanted returns.
IN_PLACE, ASYNCHRONOUS, IN_GROUP, FAILED, BEGUN = 1, 2, 4, 8, 16
NO_COLLECTIVES, METADATA, HASHES, BUFFERS = 0, 1, 2, 3
_NO_FEED = 1  # of enum ttrace_open_flag: the agent replays by itself

# ttrace_tensor: struct_size, phase, dtype, kind, ndim, microbatch, call, flags, reserved, then the
# addresses of module, slot, raw_name, layout, shape, data, then alias_of, device, reserved, stream.
_TENSOR = struct.Struct("@I4BiIIIPPPPPPqIIP")
# ttrace_collective: struct_size, flags, the addresses of function, reduction, group, module,
# input_splits, output_splits, then sequence, count, factor, member, size, peer, microbatch, dtype,
# reserved, input, output, position.
_COLLECTIVE = struct.Struct("@IIPPPPPPQQdiiiiB7xqqq")
# ttrace_options: struct_size, rank, world_size, flags, directory, writer, run_id, ring_bytes.
_OPTIONS = struct.Struct("@IiiIPPPQ")
_SHAPES_KEPT = 65536  # a program with ever new shapes must not grow


class TensorCall(threading.local):
    """Each thread packs its own: the call releases the interpreter's lock."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_TENSOR.size)
        self.address = ctypes.addressof(self.buffer)


class Library:
    def __init__(self, path: str):
        self._library = ctypes.CDLL(path)
        self._record = self._function("ttrace_record", ctypes.c_int64, ctypes.c_void_p)
        self._record_collective = self._function("ttrace_record_collective", ctypes.c_int,
                                                 ctypes.c_void_p)
        self.collectives_wanted = self._function("ttrace_collectives_wanted", ctypes.c_int)
        self.pause = self._function("ttrace_pause", ctypes.c_int, ctypes.c_int)
        self.begin_microbatch = self._function("ttrace_begin_microbatch", ctypes.c_int,
                                               ctypes.c_int32)
        self._push_scope = self._function("ttrace_push_scope", ctypes.c_int, ctypes.c_char_p)
        self.pop_scope = self._function("ttrace_pop_scope", ctypes.c_int)
        self._scope = self._function("ttrace_scope", ctypes.c_char_p)
        self._axis = self._function("ttrace_axis", ctypes.c_int, ctypes.c_char_p, ctypes.c_int32,
                                    ctypes.c_int32)
        self._group = self._function("ttrace_group", ctypes.c_int, ctypes.c_char_p,
                                     ctypes.c_void_p, ctypes.c_size_t)
        self._open = self._function("ttrace_open", ctypes.c_int, ctypes.c_void_p)
        self._set = self._function("ttrace_set", ctypes.c_int, ctypes.c_char_p)
        self._note = self._function("ttrace_note", ctypes.c_int, *[ctypes.c_char_p] * 3)
        self._begin = self._function("ttrace_begin_iteration", ctypes.c_int, ctypes.c_int64)
        self.end_iteration = self._function("ttrace_end_iteration", ctypes.c_int)
        self.active = self._function("ttrace_active", ctypes.c_int)
        self.close = self._function("ttrace_close", ctypes.c_int)
        self._last_error = self._function("ttrace_last_error", ctypes.c_char_p)
        self._call = TensorCall()
        self._texts: Dict[str, Tuple[Any, int]] = {}
        self._shapes: Dict[Any, Tuple[Any, int]] = {}

    @classmethod
    def from_environment(cls) -> "Library":
        path = os.environ.get("TTRACE_LIB")
        if not path:
            raise RuntimeError("TTRACE_LIB is not set, start the program with ttrace-capture")
        return cls(path)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        function.argtypes = arguments
        return function

    def open(self, rank: Optional[int], world_size: Optional[int]) -> int:
        """0, or a negative errno; what is None is left to the environment."""
        options = _OPTIONS.pack(_OPTIONS.size, -1 if rank is None else rank, world_size or 0,
                                _NO_FEED, 0, 0, 0, 0)
        return self._open(ctypes.create_string_buffer(options, len(options)))

    def set(self, json_text: str) -> int:
        return self._set(json_text.encode("utf-8", "replace"))

    def note(self, what: str, where: str, why: str) -> int:
        return self._note(*(text.encode("utf-8", "replace") for text in (what, where, why)))

    def begin_iteration(self, iteration: int) -> int:
        return self._begin(iteration)

    def push_scope(self, module: str) -> int:
        """The calling thread is in `module` until it calls pop_scope."""
        return self._push_scope(module.encode("utf-8", "replace"))

    def scope(self) -> str:
        return (self._scope() or b"").decode("utf-8", "replace")

    def axis(self, name: str, size: int, coordinate: int) -> int:
        return self._axis(name.encode("utf-8", "replace"), size, coordinate)

    def group(self, name: str, ranks: Sequence[int]) -> int:
        """A process group: the global ranks of its members, in the order of their numbers."""
        numbers = (ctypes.c_int32 * max(len(ranks), 1))(*ranks)
        return self._group(name.encode("utf-8", "replace"), ctypes.addressof(numbers), len(ranks))

    def record_collective(self, function: str, group: str, *, sequence: int, member: int,
                          size: int, count: int, dtype: int, reduction: str = "",
                          module: Optional[str] = None, peer: int = -1,
                          microbatch: int = CURRENT, flags: int = 0, factor: float = 1.0,
                          input: int = -1, output: int = -1, position: int = -1,
                          input_splits: str = "", output_splits: str = "") -> int:
        """A call that was made: 0, or a negative errno. module None: this thread's scope."""
        splits = [ctypes.create_string_buffer(text.encode()) if text else None
                  for text in (input_splits, output_splits)]
        packed = ctypes.create_string_buffer(_COLLECTIVE.pack(
            _COLLECTIVE.size, flags, self._address(function), self._address(reduction),
            self._address(group), 0 if module is None else self._address_of_any(module),
            *(0 if text is None else ctypes.addressof(text) for text in splits),
            sequence, count, factor, member, size, peer, microbatch, dtype, input, output,
            position), _COLLECTIVE.size)
        return self._record_collective(ctypes.addressof(packed))

    def last_error(self) -> str:
        return (self._last_error() or b"").decode("utf-8", "replace")

    def record(self, phase: int, dtype: int, kind: int, shape: Tuple[int, ...], microbatch: int,
               call: int, flags: int, module: str, slot: str, raw_name: str, layout: str,
               data: int, alias_of: int, device: int = HOST, stream: int = 0) -> int:
        """The record's sequence number, or a negative errno."""
        texts = self._texts
        module_text = texts.get(module) or self._text(module)
        slot_text = texts.get(slot) or self._text(slot)
        raw_text = (texts.get(raw_name) or self._text(raw_name)) if raw_name else _NOTHING
        layout_text = (texts.get(layout) or self._text(layout)) if layout else _NOTHING
        extents = self._shapes.get(shape) or self._shape(shape)
        tensor = self._call
        _TENSOR.pack_into(tensor.buffer, 0, _TENSOR.size, phase, dtype, kind, len(shape),
                          microbatch, call, flags, 0, module_text[1], slot_text[1], raw_text[1],
                          layout_text[1], extents[1], data, alias_of, device, 0, stream)
        return self._record(tensor.address)

    def _address_of_any(self, text: str) -> int:
        """Of a text that may be empty."""
        return (self._texts.get(text) or self._text(text))[1]

    def _address(self, text: str) -> int:
        return self._address_of_any(text) if text else 0

    def _text(self, text: str) -> Tuple[Any, int]:
        buffer = ctypes.create_string_buffer(text.encode("utf-8", "replace"))
        self._texts[text] = entry = (buffer, ctypes.addressof(buffer))
        return entry

    def _shape(self, shape: Tuple[int, ...]) -> Tuple[Any, int]:
        if len(self._shapes) >= _SHAPES_KEPT:
            self._shapes = {}
        array = (ctypes.c_uint64 * max(len(shape), 1))(*shape)
        self._shapes[shape] = entry = (array, ctypes.addressof(array))
        return entry


_NOTHING = (None, 0)
