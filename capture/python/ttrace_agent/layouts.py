# SPDX-License-Identifier: Apache-2.0
"""Which part of a logical tensor this rank holds: dims strings, and what they select.

The grammar is that of docs/layouts.md, e.g. "s[cp:zigzag,tp] b h[tp:/2] partial(dp)". A cut picks
positions of a sequence: the outermost sees the elements of the dimension, each inner one what the
cut around it left to this rank. The C++ readers (libttrace/layout.cpp) follow the same rules.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

Runs = List[Tuple[int, int]]  # (first, count) in the logical dimension, in local order


class AxisPosition(NamedTuple):
    coord: int
    size: int


class LayoutError(ValueError):
    """The layout cannot describe the tensor; the message says why."""


def to_json(dims: str, shape: Optional[Sequence[int]], source: str,
            flat: Optional[Dict[str, Any]] = None, axes: Optional[List[str]] = None) -> str:
    """An entry of /layouts; equal layouts give equal texts."""
    members: Dict[str, Any] = {"dims": dims}
    if shape is not None:
        members["shape"] = [int(extent) for extent in shape]
    if flat is not None:
        members["flat"] = flat
    if axes:
        members["axes"] = axes
    members["source"] = source
    return json.dumps(members, separators=(",", ":"))


def dims_text(cuts: Sequence[Sequence[str]], partial: Sequence[str] = ()) -> str:
    """[["tp"], []] -> "[tp] -"."""
    words = [f"[{','.join(cut)}]" if cut else "-" for cut in cuts]
    if partial:
        words.append(f"partial({','.join(partial)})")
    return " ".join(words)


class Cut(NamedTuple):
    axis: str
    rule: str  # "", "zigzag", "/K", "(A,B,...)" or "zigzag(A,B,...)"


_SECTIONS = r"\([1-9]\d*(?:,[1-9]\d*)*\)"
_CUT = re.compile(rf"([^:,\[\]()\s]+)(?::(zigzag(?:{_SECTIONS})?|/[1-9]\d*|{_SECTIONS}))?")
_DIM = re.compile(r"([^\[\]\s()]*)(?:\[([^\[\]\s]+)\])?")


def parse_dims(dims: str) -> List[List[Cut]]:
    """One list of cuts a dimension, outer to inner."""
    parsed: List[List[Cut]] = []
    for word in dims.split():
        if word.startswith("partial("):
            raise LayoutError(f"dims {dims!r}: a sum still to be made is no place in a tensor")
        match = _DIM.fullmatch(word)
        if match is None:
            raise LayoutError(f"dims {dims!r}: {word!r} is no dimension")
        parsed.append(_parse_cuts(match.group(2), dims) if match.group(2) else [])
    return parsed


def _parse_cuts(text: str, dims: str) -> List[Cut]:
    cuts, at = [], 0
    while at <= len(text):
        match = _CUT.match(text, at)
        if match is None or text[match.end():match.end() + 1] not in ("", ","):
            raise LayoutError(f"dims {dims!r}: {text[at:]!r} is no cut")
        cuts.append(Cut(match.group(1), match.group(2) or ""))
        at = match.end() + 1
    return cuts


def runs_of(extent: int, cuts: Sequence[Cut], axes: Dict[str, AxisPosition]) -> Runs:
    """What this rank holds of a dimension of `extent` elements."""
    runs: Runs = [(0, extent)]
    for cut in cuts:
        position = _position(cut.axis, axes)
        local = sum(count for _, count in runs)
        runs = _select(runs, _spans(cut, local, position))
    return runs


def _position(axis: str, axes: Dict[str, AxisPosition]) -> AxisPosition:
    """An absent axis has size 1; "tp/outer2" are tp's ranks as 2 neighbourhoods."""
    if axis in axes:
        return axes[axis]
    match = re.fullmatch(r"(.+)/(outer|inner)(\d+)", axis)
    if match is None or match.group(1) not in axes:
        return AxisPosition(0, 1)
    coord, size = axes[match.group(1)]
    parts = int(match.group(3))
    if parts == 0 or size % parts:
        raise LayoutError(f"{axis}: {match.group(1)} has {size} ranks")
    return AxisPosition(coord % parts if match.group(2) == "inner" else coord // (size // parts),
                        parts)


def _spans(cut: Cut, extent: int, position: AxisPosition) -> Runs:
    coord, size = position
    if cut.rule == "":
        return [_chunk(0, extent, position)]
    zigzag = cut.rule.startswith("zigzag")
    first, spans = 0, []
    for section in _sections(cut.rule.replace("zigzag", ""), extent):
        if zigzag and section % (2 * size):
            raise LayoutError(f"{section} elements do not divide into {2 * size} chunks")
        if zigzag:
            part = section // (2 * size)
            spans += [(first + chunk * part, part) for chunk in (coord, 2 * size - 1 - coord)]
        else:
            spans.append(_chunk(first, section, position))
        first += section
    return spans


def _sections(rule: str, extent: int) -> List[int]:
    """ "/K" or "(A,B,...)"; "" is one."""
    if rule.startswith("/"):
        parts = int(rule[1:])
        if extent % parts:
            raise LayoutError(f"{extent} elements do not divide into {parts} equal sections")
        return [extent // parts] * parts
    sections = [int(number) for number in rule[1:-1].split(",")] if rule else [extent]
    if sum(sections) != extent:
        raise LayoutError(f"sections {rule} do not add up to {extent} elements")
    return sections


def _chunk(first: int, extent: int, position: AxisPosition) -> Tuple[int, int]:
    """As torch.chunk: parts of ceil(extent / size), the last ones smaller or empty."""
    part = -(-extent // position.size)
    start = min(extent, part * position.coord)
    return first + start, min(extent, start + part) - start


def _select(runs: Runs, spans: Runs) -> Runs:
    """The elements of `runs` at the local positions `spans`."""
    selected: Runs = []
    for span_first, span_count in spans:
        local = 0
        for first, count in runs:
            begin = max(span_first, local)
            end = min(span_first + span_count, local + count)
            if begin < end:
                selected.append((first + begin - local, end - begin))
            local += count
    return selected


def cut(tensor: Any, runs_by_dim: Sequence[Runs]) -> Any:
    """This rank's part of a whole tensor; a copy only where a dimension has several runs."""
    import torch

    for dim, runs in enumerate(runs_by_dim):
        if runs == [(0, tensor.shape[dim])]:
            continue
        parts = [tensor.narrow(dim, first, count) for first, count in runs]
        tensor = (torch.cat(parts, dim) if len(parts) > 1
                  else parts[0] if parts else tensor.narrow(dim, 0, 0))
    return tensor


def with_flat(layout: str, declared: str) -> str:
    """A rule's layout; no rule says which piece of the flattened shard a rank has declared."""
    flat = json.loads(declared).get("flat") if layout and declared else None
    if flat is None:
        return layout
    members = json.loads(layout)
    return to_json(members["dims"], members.get("shape"), members["source"], flat)


def flat_part(tensor: Any, layout: str) -> Any:
    """The piece of a shard that a rank keeps flattened; the shard itself where it keeps all."""
    flat = json.loads(layout).get("flat") if layout else None
    if flat is None or list(tensor.shape) != flat["shape"]:
        return tensor
    return tensor.reshape(-1).narrow(0, flat["start"], flat["count"])
