# SPDX-License-Identifier: Apache-2.0
"""From a torch tensor to a record: which bytes, which layout, and whether they are known already.

A tensor that has the same storage, offset, shape, strides and version as an earlier record of this
iteration becomes an alias row: no bytes, and an edge of the data flow. Storages are compared as
objects through weak references, never by address, because a freed one's address is soon used again.
Collectives write without changing the version, so they report what they touch (collectives.py).
"""

from __future__ import annotations

import collections
import errno
import math
import weakref
from typing import Any, Dict, Optional, Tuple

from . import abi, adapters, layouts

_FULL = abi.KINDS["full"]


def dtype_codes(torch: Any) -> Dict[Any, int]:
    """Codes of enum ttrace_dtype by torch's dtype; what this torch lacks is left out."""
    names = ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8",
             "int16", "int32", "int64", "uint8", "bool"]
    return {getattr(torch, name): code for code, name in enumerate(names) if hasattr(torch, name)}


class Estimate:
    """Stands in for the library with --estimate: adds up bytes by phase and records nothing."""

    def __init__(self) -> None:
        self.bytes: Dict[str, int] = collections.Counter()
        self.records = 0

    def add(self, phase: str, size: int) -> int:
        self.bytes[phase] += size
        self.records += 1
        return self.records - 1


class Recorder:
    def __init__(self, agent: Any, torch: Any):
        self._agent = agent
        self._torch = torch
        self._options = agent.options
        self._library = agent.library
        self._codes = dtype_codes(torch)
        self._plain = {torch.Tensor, torch.nn.Parameter}
        self._as_bits = {getattr(torch, f"uint{bits}"): getattr(torch, f"int{bits}")
                         for bits in (16, 32, 64) if hasattr(torch, f"uint{bits}")}
        self._kind = abi.KINDS[self._options.kind]
        self._copies_cuda = torch.version.cuda is not None  # ROCm calls its devices cuda, too
        self._plans: Dict[Tuple[str, str, str], Tuple[bool, str]] = {}
        self._has_plans = self._options.filtered or bool(self._options.layout_rules)
        self._known: Dict[Any, Tuple[Any, int]] = {}
        self._keys_of: Dict[int, list] = {}  # by storage, the keys in _known
        self.estimate: Optional[Estimate] = Estimate() if self._options.estimate else None
        self.latest = abi.NOT_ALIAS  # sequence number

    def begin(self) -> None:
        """A segment's aliases stay within it."""
        self.latest = abi.NOT_ALIAS
        self._known = {}
        self._keys_of = {}

    # ---- what is wanted ----

    def plan(self, phase: str, module: str, slot: str) -> Tuple[bool, str]:
        """Whether the filters let it through, and the layout that the user's rules give it."""
        if not self._has_plans:
            return True, ""
        key = (phase, module, slot)
        plan = self._plans.get(key)
        if plan is None:
            rule = self._options.rule_for(phase, module, slot)
            layout = layouts.to_json(rule.dims, rule.shape, "file") if rule else ""
            plan = self._plans[key] = (self._options.wants(phase, module, slot), layout)
        return plan

    # ---- aliases ----

    def _key(self, tensor: Any) -> Tuple[Any, Any]:
        storage = tensor.untyped_storage()
        try:
            version = tensor._version
        except RuntimeError:  # made under inference_mode: never known to be the same
            version = object()
        return storage, (storage._cdata, tensor.storage_offset(), version, tensor.shape,
                         tensor.stride(), tensor.dtype)

    def sequence_of(self, tensor: Any) -> int:
        """Of the record that holds exactly this tensor, NOT_ALIAS when there is none."""
        if type(tensor) not in self._plain:
            tensor, _ = adapters.local_part(tensor)
            if tensor is None:
                return abi.NOT_ALIAS
        try:
            return self._lookup(*self._key(tensor))
        except (NotImplementedError, RuntimeError):  # sparse, or inside a functorch transform
            return abi.NOT_ALIAS

    def _lookup(self, storage: Any, key: Any) -> int:
        entry = self._known.get(key)
        if entry is None or entry[0]() is not storage:
            return abi.NOT_ALIAS
        return entry[1]

    def _remember(self, storage: Any, key: Any, sequence: int) -> None:
        self._known[key] = (weakref.ref(storage), sequence)
        self._keys_of.setdefault(key[0], []).append(key)

    def remember(self, tensor: Any, sequence: int) -> None:
        """That `tensor` stands for a record, although its values may be others by now."""
        self._remember(*self._key(tensor), sequence)

    def forget(self, tensor: Any) -> None:
        """The bytes of this storage may change without a new version: it is known no more."""
        for key in self._keys_of.pop(tensor.untyped_storage()._cdata, ()):
            self._known.pop(key, None)

    # ---- records ----

    def write(self, phase: str, module: str, slot: str, tensor: Any, *, microbatch: int = -1,
              call: int = 0, flags: int = 0, raw_name: str = "", layout: str = "",
              alias_of: int = abi.NOT_ALIAS, link: bool = True, always: bool = False) -> int:
        """Records `tensor`; its sequence number, negative when it was not recorded.

        `link` false: never as an alias (parameters and states are changed in ways that no version
        counter sees). `always`: in full, whatever the filters say.
        """
        ruled_layout = ""
        if self._has_plans:
            wanted, ruled_layout = self.plan(phase, module, slot)
            if not wanted and not always:
                return abi.NOT_ALIAS
            ruled_layout = layouts.with_flat(ruled_layout, layout)
        if type(tensor) not in self._plain:
            tensor, declared = adapters.local_part(tensor)
            if tensor is None:
                return self._refuse(module, slot, declared)
            layout = declared or layout  # a gradient may be placed unlike its parameter
        tensor = self.representable(tensor)
        if tensor is None:
            return self._refuse(module, slot, "its dtype cannot be recorded")
        code = self._codes[tensor.dtype]
        key = None
        if alias_of < 0:
            try:
                storage, key = self._key(tensor)
            except (NotImplementedError, RuntimeError) as error:
                return self._refuse(module, slot, f"it has no plain storage ({error})")
            if link:
                alias_of = self._lookup(storage, key)
        kind = _FULL if always else self._kind
        if self.estimate is not None:
            kept = alias_of < 0 and kind == _FULL
            sequence = self.estimate.add(phase, tensor.nbytes if kept else 0)
        else:
            data, device, stream = 0, abi.HOST, 0
            if alias_of < 0:
                if self._copies_cuda and tensor.is_cuda:
                    if self._torch.cuda.is_current_stream_capturing():
                        return self._refuse(module, slot, "its stream is being captured into a "
                                            "CUDA graph, whose runs call no hooks")
                    tensor, stream = self._in_stream(tensor)
                    device = abi.DEVICE
                else:
                    tensor = self.packed(tensor)
                data = tensor.data_ptr()
            sequence = self._library.record(
                abi.PHASES[phase], code, kind, tensor.shape, microbatch, call, flags, module, slot,
                raw_name if raw_name != module else "", ruled_layout or layout, data, alias_of,
                device, stream)
            if not self._is_written(sequence):
                return abi.NOT_ALIAS
        if alias_of < 0:
            self._remember(storage, key, sequence)
        return sequence

    def _in_stream(self, tensor: Any) -> Tuple[Any, int]:
        """Contiguous on its device, and the stream in whose order the library copies it.

        Nobody waits for that copy, while the tensor may be gone at once and its memory be another's.
        That is safe because the allocator hands memory of a stream only to later work of the same
        stream, which runs behind the copy. Where the tensor is of another stream than the current
        one, record_stream makes the allocator wait for the current one, too; else it does nothing.
        """
        with self._torch.no_grad():
            tensor = tensor.detach().resolve_neg().contiguous()
        stream = self._torch.cuda.current_stream(tensor.device)
        tensor.record_stream(stream)
        return tensor, stream.cuda_stream

    def write_bytes(self, phase: str, module: str, slot: str, dtype: Any, kind: int,
                    shape: Tuple[int, ...], address: int, microbatch: int, call: int) -> int:
        """A record that has nothing to do with any other: bytes, not a tensor of the program."""
        if self.estimate is not None:
            size = math.prod(shape) * dtype.itemsize if kind == _FULL else 0
            return self.estimate.add(phase, size)
        sequence = self._library.record(
            abi.PHASES[phase], self._codes[dtype], kind, shape, microbatch, call, 0, module, slot,
            "", "", address, abi.NOT_ALIAS)
        return sequence if self._is_written(sequence) else abi.NOT_ALIAS

    def _is_written(self, sequence: int) -> bool:
        """What the library made of a record: false when it leaves it out."""
        if sequence == -errno.ENOTCONN and self._options.filtered:
            return False  # it filters, too, and read a glob otherwise
        if sequence < 0:
            raise RuntimeError(self._library.last_error() or f"ttrace_record: {sequence}")
        self.latest = sequence
        return True

    def code_of(self, dtype: Any) -> int:
        """Of what representable() makes of it; that of bytes where there is none."""
        return self._codes.get(self._as_bits.get(dtype, dtype), self._codes[self._torch.uint8])

    def packed(self, tensor: Any) -> Any:
        """Contiguous and on the host; the copy waits for the current stream, as the data do."""
        if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg():
            return tensor
        with self._torch.no_grad():
            return tensor.detach().resolve_neg().contiguous().cpu()

    def representable(self, tensor: Any) -> Any:
        """The same bits under a dtype that the format has, or None."""
        if tensor.dtype in self._codes:
            return tensor
        if tensor.dtype in self._as_bits:
            return tensor.detach().view(self._as_bits[tensor.dtype])
        if tensor.is_complex() and tensor.dtype is not getattr(self._torch, "complex32", None):
            return self._torch.view_as_real(tensor.detach().resolve_conj())
        return None

    def _refuse(self, module: str, slot: str, why: str) -> int:
        self._agent.note("not recorded", f"{module}/{slot}", why)
        return abi.NOT_ALIAS
