# SPDX-License-Identifier: Apache-2.0
"""Mesh axes of a program that only makes process groups: no mesh object, no framework.

Groups along an axis have the same size and stride, and begin in such places that they cover the
world. Every rank sees the groups that it is in, and by that symmetry all ranks see the same axes.
They are named by the distance of their ranks: what a program calls its groups may depend on the
rank.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Sequence, Tuple

Axis = Tuple[str, int, int]  # name, size, coordinate


def axes_of(groups: Iterable[Sequence[int]], rank: int, world: int) -> List[Axis]:
    """Outermost first; [] when no group is smaller than the world, or none is regular.

    Of groups with the same stride the smallest counts: larger ones join several axes. A gap between
    two axes is an axis that no group was made for.
    """
    sizes: Dict[int, int] = {}  # by stride
    for members in groups:
        found = _regular(sorted(members), rank, world)
        if found is not None:
            stride, size = found
            sizes[stride] = min(size, sizes.get(stride, size))
    axes: List[Axis] = []
    covered = 1
    for stride in [*sorted(sizes), world]:
        if stride % covered != 0:
            continue  # joins parts of an axis that is known
        if stride > covered:
            axes.append(_axis(covered, stride // covered, rank))
        if stride < world:
            axes.append(_axis(stride, sizes[stride], rank))
            covered = stride * sizes[stride]
    return axes[::-1] if sizes else []


def _axis(stride: int, size: int, rank: int) -> Axis:
    return (f"stride{stride}", size, rank // stride % size)


def stride_of(name: str) -> int:
    """Of an axis that is called so here; 0: it has another name."""
    digits = name.removeprefix("stride")
    return int(digits) if digits != name and digits.isdigit() else 0


def _regular(members: List[int], rank: int, world: int) -> Optional[Tuple[int, int]]:
    """(stride, size) of ranks with equal distances that tile the world without being all of it."""
    if not 2 <= len(members) < world or rank not in members:
        return None
    stride, size = members[1] - members[0], len(members)
    even = all(member == members[0] + stride * i for i, member in enumerate(members))
    tiles = world % (stride * size) == 0 and members[0] % (stride * size) < stride
    return (stride, size) if even and tiles else None
