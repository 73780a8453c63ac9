# SPDX-License-Identifier: Apache-2.0
"""--init-from: every layout starts from the same parameters.

A pack (docs/format.md) holds whole parameters; each rank takes its part, cut by the user's rules, a
DTensor's placements or Megatron's attributes, in this order. `seed:N` needs no file: element i of
the parameter NAME is a function of (N, NAME, i) alone, uniform with mean 0; its standard deviation
is 1/sqrt(product of all extents but the first) for matrices and 0.02 for vectors. Parameters that
are all zeros or all ones stay as they are. What cannot be done ends the run: a comparison that
starts from other parameters would be void.
"""

from __future__ import annotations

import json
import math
import os
import sys
import zlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import adapters, layouts
from .layouts import LayoutError
from .names import ParameterInfo, Root
from .pack import Pack, PackError as InitialError

_AT_ONCE = 1 << 20  # elements that seed:N makes at a time


class Initialiser:
    def __init__(self, agent: Any, torch: Any, init: Dict[str, Any], pack: Any = None):
        self._agent = agent
        self._torch = torch
        self._init = init
        self._pack: Optional[Any] = pack

    def set_known(self, root: Root) -> List[str]:
        """Sets the parameters that the pack has; the names of those that it has not."""
        known = self._pack.tensors
        self._set_all([info for info in root.parameters if info.name in known])
        return [info.name for info in root.parameters
                if info.name not in known and info.ref() is not None]

    def apply(self, root: Root) -> None:
        """Sets all parameters of a root whose first training forward pass begins."""
        try:
            self._agent.names.refresh(root, self._agent.steps.iteration)
            with self._torch.no_grad():
                self._set_all(root.parameters)
                adapters.reload_masters()
        except InitialError as error:
            self._end(str(error))
        except Exception as error:
            self._end(repr(error))

    def _set_all(self, parameters: List[ParameterInfo]) -> None:
        if self._init["kind"] == "pack" and self._pack is None:
            self._pack = Pack(self._init["path"], self._torch)
        axes = self._agent.mesh.positions(self._agent.names.roots)
        for info in parameters:
            parameter = info.ref()
            if parameter is None:
                continue
            try:
                local, _ = adapters.local_part(parameter)
                self._set(info, parameter, info.of(local.data), axes)
            except LayoutError as error:
                raise InitialError(f"{info.name}: {error}") from error

    def _set(self, info: ParameterInfo, parameter: Any, local: Any, axes: Dict[str, Any]) -> None:
        dims, shape, flat = self._layout(info)
        if self._pack is None:
            self._draw(info.name, local, dims, shape, flat, axes)
            return
        if info.name not in self._pack.tensors:
            raise InitialError(f"{info.name}: the trace has no such parameter, was it made with "
                               "another model?")
        whole = self._pack.tensor(info.name)
        if dims is None:
            if whole.shape != local.shape:
                raise InitialError(f"{info.name}: {_text(local)} here, {_text(whole)} in the "
                                   "trace, and nothing declares how it is cut: say it in a "
                                   "--layout file")
            local.copy_(whole)
            return
        shape = shape or list(whole.shape)
        padded = adapters.may_be_padded(parameter) and shape[1:] == list(whole.shape)[1:]
        if shape != list(whole.shape) and not padded:
            raise InitialError(f"{info.name}: {tuple(shape)} here by its layout {dims!r}, "
                               f"{_text(whole)} in the trace")
        runs = self._runs(dims, shape, flat, local, axes, info.name)
        if flat is None:
            self._copy_part(local, whole, runs)
        else:
            local.copy_(layouts.flat_part(layouts.cut(whole, runs), info.layout))

    def _copy_part(self, local: Any, whole: Any, runs: List[layouts.Runs]) -> None:
        """Rows of padding, which the trace has not, keep their values."""
        rows, at = whole.shape[0] if whole.dim() else 0, 0
        if whole.dim() == 0:
            local.copy_(whole)
            return
        for first, count in runs[0]:
            there = max(0, min(count, rows - first))
            if there:
                part = layouts.cut(whole.narrow(0, first, there), [[(0, there)]] + runs[1:])
                local.narrow(0, at, there).copy_(part)
            at += count

    def _layout(self, info: ParameterInfo) -> Tuple[Optional[str], Optional[List[int]],
                                                    Optional[Dict[str, Any]]]:
        """Its dims, logical shape and flat piece; rules do not speak of the latter."""
        declared = json.loads(info.layout) if info.layout else {}
        rule = self._agent.options.rule_for("param", info.name, "value")
        if rule is not None:
            return rule.dims, rule.shape, declared.get("flat")
        return declared.get("dims"), declared.get("shape"), declared.get("flat")

    def _runs(self, dims: str, shape: List[int], flat: Optional[Dict[str, Any]], local: Any,
              axes: Dict[str, Any], name: str) -> List[layouts.Runs]:
        cuts = layouts.parse_dims(dims)
        if len(cuts) != len(shape):
            raise InitialError(f"{name}: its layout {dims!r} has {len(cuts)} dimensions, "
                               f"the parameter {len(shape)}")
        runs = [layouts.runs_of(extent, cut, axes) for extent, cut in zip(shape, cuts)]
        selected = [sum(count for _, count in dim) for dim in runs]
        held = list(local.shape) if flat is None else flat["shape"]
        if selected != held:
            raise InitialError(f"{name}: its layout {dims!r} gives this rank {tuple(selected)}, "
                               f"but it holds {tuple(held)}")
        return runs

    # ---- seed:N ----

    def _draw(self, name: str, local: Any, dims: Optional[str], shape: Optional[List[int]],
              flat: Optional[Dict[str, Any]], axes: Dict[str, Any]) -> None:
        if local.numel() == 0 or not local.is_floating_point():
            return
        if bool((local == 0).all()) or bool((local == 1).all()):
            return
        shape = shape or list(local.shape)
        runs = (self._runs(dims, shape, flat, local, axes, name) if dims is not None
                else [[(0, extent)] for extent in shape])
        seed = _mix(int(self._init["seed"]) ^ zlib.crc32(name.encode()) << 32)
        spread = math.sqrt(3.0 / math.prod(shape[1:])) if len(shape) > 1 else math.sqrt(3.0) * 0.02
        torch = self._torch
        places = [torch.cat([torch.arange(first, first + count, device="cpu")
                             for first, count in dim]) for dim in runs]
        for first, part in _blocks(local, flat):
            index = _indices(places, shape, first, part.numel(), torch)
            part.copy_(((_uniform(index, seed, torch) * 2 - 1) * spread).view(part.shape))

    def _end(self, why: str) -> None:
        self._agent.open()
        self._agent.note("init_from", self._init.get("path") or f"seed:{self._init.get('seed')}",
                         why)
        sys.stdout.flush()
        print(f"ttrace-capture: --init-from: {why}", file=sys.stderr, flush=True)
        self._agent.close()
        os._exit(2)  # past every `except` of the program


def _text(tensor: Any) -> str:
    return str(tuple(tensor.shape))


_WORD = 1 << 64
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(value: int) -> int:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the input."""
    value = (value + _GOLDEN) % _WORD
    value = (value ^ value >> 30) * _FIRST % _WORD
    value = (value ^ value >> 27) * _SECOND % _WORD
    return value ^ value >> 31


def _signed(value: int) -> int:
    return value - _WORD if value >= _WORD // 2 else value


def _blocks(local: Any, flat: Optional[Dict[str, Any]]) -> Iterator[Tuple[int, Any]]:
    """(number of the first element in the shard, part of `local`), whole rows where it has any."""
    rows = local.unsqueeze(0) if local.dim() == 0 else local
    width = max(1, math.prod(rows.shape[1:]))
    step = max(1, _AT_ONCE // width)
    for first in range(0, rows.shape[0], step):
        yield (flat["start"] if flat else 0) + first * width, rows[first:first + step]


def _indices(places: List[Any], shape: List[int], first: int, count: int, torch: Any) -> Any:
    """Row-major indices in the whole parameter of elements [first, first + count) of this part."""
    element = torch.arange(first, first + count, device="cpu")
    index = torch.zeros_like(element)
    stride = 1
    for dim in reversed(range(len(places))):
        index += places[dim][element % len(places[dim])] * stride
        element = element // len(places[dim])
        stride *= shape[dim]
    return index


def _uniform(index: Any, seed: int, torch: Any) -> Any:
    """SplitMix64 of seed and index as float64 in [0, 1): integer operations, exact everywhere."""
    def shifted(value: Any, bits: int) -> Any:
        return (value >> bits) & ((1 << (64 - bits)) - 1)  # >> alone would drag the sign along

    value = index * _signed(_GOLDEN) + _signed(seed)
    value = (value ^ shifted(value, 30)) * _signed(_FIRST)
    value = (value ^ shifted(value, 27)) * _signed(_SECOND)
    value = value ^ shifted(value, 31)
    return shifted(value, 11).to(torch.float64) * 2.0 ** -53
