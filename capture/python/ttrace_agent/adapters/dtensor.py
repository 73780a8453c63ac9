# SPDX-License-Identifier: Apache-2.0
"""Tensors that are more than their bytes: DTensor (FSDP2, tensor parallel) and its relatives.

What is recorded of a DTensor is this rank's local tensor, with the layout that its placements
declare. Nothing here communicates: full_tensor() and redistribute() would hang where not all ranks
call them.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Dict, List, Optional, Tuple

from .. import layouts

_texts: Dict[Any, str] = {}  # layouts by DTensorSpec
_TEXTS_KEPT = 16384
_SUMS = ("sum",)


def is_dtensor(tensor: Any) -> bool:
    return hasattr(tensor, "_local_tensor") and hasattr(tensor, "_spec")


def local_part(tensor: Any) -> Tuple[Any, str]:
    """(this rank's plain tensor, declared layout or ""), or (None, why there is none)."""
    if is_dtensor(tensor):
        local, _ = local_part(tensor._local_tensor)
        spec = tensor._spec
        return _masked(local, spec.placements), declared(spec)
    if hasattr(tensor, "trigger_wait"):  # the result of a collective that may still run
        return local_part(tensor.trigger_wait())
    if hasattr(tensor, "__tensor_flatten__") or type(tensor).__name__ == "FakeTensor":
        return None, f"a {type(tensor).__name__} has no bytes of its own"
    return tensor, ""


def _masked(local: Any, placements: Tuple[Any, ...]) -> Any:
    """Rows that a sharded embedding looked up for tokens of other ranks count as zero.

    The sum over the ranks applies that mask just before it adds; a record of the raw rows would be
    no partial sum at all.
    """
    for placement in placements:
        mask = getattr(placement, "mask_buffer", None)
        if mask is not None and mask.data is not None:
            local = local.detach().clone()
            mask.apply_mask(local)
    return local


def axis_names(mesh: Any) -> List[str]:
    names = mesh.mesh_dim_names or [None] * mesh.ndim
    return [name or f"mesh{dim}" for dim, name in enumerate(names)]


def declared(spec: Any) -> str:
    """The layout as /layouts has it; "" when it cannot be put into words."""
    text = _texts.get(spec)
    if text is None:
        if len(_texts) >= _TEXTS_KEPT:
            _texts.clear()
        dims = _dims(spec)
        text = "" if dims is None else layouts.to_json(dims, spec.shape, "dtensor",
                                                       axes=_partial_mesh(spec.mesh))
        _texts[spec] = text
    return text


def _partial_mesh(mesh: Any) -> List[str]:
    """The axes of a mesh that is not the whole world: other ranks hold tensors of their own."""
    import torch.distributed

    return [] if mesh.size() == torch.distributed.get_world_size() else axis_names(mesh)


def _dims(spec: Any) -> Optional[str]:
    names = axis_names(spec.mesh)
    partial = []
    for axis, placement in zip(names, spec.placements):
        if placement.is_partial():
            if getattr(placement, "reduce_op", "") not in _SUMS:
                return None  # a maximum or a norm still to be made
            partial.append(axis)
    cuts = _cuts(spec, names)
    return None if cuts is None else layouts.dims_text(cuts, partial)


def _cuts(spec: Any, names: List[str]) -> Optional[List[List[str]]]:
    """Per dimension of the tensor the axes that cut it, the outermost cut first.

    Shard cuts in the order of the mesh, unless the spec says otherwise. A strided shard of factor k
    comes inside cuts of later mesh dimensions that make k parts: FSDP2 over tensor parallel is
    "[tp,dp]". Where no order gives k, the dimension is k equal sections, each cut over the axis.
    """
    placements, mesh = spec.placements, spec.mesh
    orders: List[List[int]] = [[] for _ in spec.shape]
    strided = any(hasattr(placement, "split_factor") for placement in placements)
    if not strided and getattr(spec, "shard_order", None):
        for entry in spec.shard_order:
            orders[entry.tensor_dim] = list(entry.mesh_dims)
        return [[names[dim] for dim in order] for order in orders]
    rules: Dict[int, str] = {}
    for mesh_dim in reversed(range(len(placements))):
        placement = placements[mesh_dim]
        if not hasattr(placement, "dim"):
            continue
        order = orders[placement.dim]
        factor = getattr(placement, "split_factor", 1)
        at, parts = 0, 1
        while parts != factor and at < len(order):
            parts *= mesh.size(order[at])
            at += 1
        if parts != factor:
            if order:
                return None
            rules[mesh_dim] = f":/{factor}"
        order.insert(at, mesh_dim)
    if any(rules.get(dim) and len(order) > 1 for order in orders for dim in order):
        return None
    return [[names[dim] + rules.get(dim, "") for dim in order] for order in orders]


def positions(mesh: Any) -> List[Tuple[str, int, int]]:
    """(axis, size, coordinate) of each dimension, outermost first; [] on ranks outside the mesh."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return []
    return [(name, mesh.size(dim), coordinate[dim]) for dim, name in enumerate(axis_names(mesh))]


def ranks_along(mesh: Any, dim: int) -> List[int]:
    """The ranks that stand apart from this one on that dimension only, and itself; [] outside."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return []
    place: List[Any] = list(coordinate)
    place[dim] = slice(None)
    return [int(rank) for rank in mesh.mesh[tuple(place)].tolist()]


def watch_tensor_parallel(style: Any, meshes: List[Any]) -> None:
    """Every mesh over which a plan cuts a module by columns or rows is appended to `meshes`.

    Not those of other plans: experts, too, are dealt out by one, to ranks with samples of their own.
    """
    for kind in (style.ColwiseParallel, style.RowwiseParallel):
        kind._apply = _remembering(kind._apply, meshes)


def _remembering(apply: Any, meshes: List[Any]) -> Any:
    @functools.wraps(apply)
    def applied(plan: Any, module: Any, mesh: Any, *args: Any, **kwargs: Any) -> Any:
        if all(known() is not mesh for known in meshes):
            meshes.append(weakref.ref(mesh))
        return apply(plan, module, mesh, *args, **kwargs)

    return applied


def watch_meshes(device_mesh: Any, meshes: List[Any]) -> None:
    """Every DeviceMesh made from now on is appended to `meshes` as a weak reference."""
    initialise = device_mesh.DeviceMesh.__init__

    @functools.wraps(initialise)
    def remembered(mesh: Any, *args: Any, **kwargs: Any) -> None:
        initialise(mesh, *args, **kwargs)
        meshes.append(weakref.ref(mesh))

    device_mesh.DeviceMesh.__init__ = remembered


def is_root_mesh(mesh: Any) -> bool:
    """Slices and flattened meshes repeat the ranks of the mesh they come from."""
    get_root = getattr(mesh, "_get_root_mesh", None)
    if get_root is None:
        return True
    root = get_root()
    return root is mesh or root is None


class PendingNorm:
    """A gradient norm that is a DTensor: its value exists once the program asks for it."""

    def __init__(self) -> None:
        self._waiting: List[Tuple[Any, Any]] = []
        self._wrapped = False

    def expect(self, norm: Any, record: Any) -> None:
        """Calls record(value) when norm.full_tensor() has been called."""
        if not self._wrapped:
            self._wrap(type(norm))
        self._waiting.append((weakref.ref(norm), record))

    def _wrap(self, dtensor: Any) -> None:
        self._wrapped = True
        full_tensor = dtensor.full_tensor

        @functools.wraps(full_tensor)
        def observed(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            value = full_tensor(tensor, *args, **kwargs)
            if self._waiting:
                self._arrived(tensor, value)
            return value

        dtensor.full_tensor = observed

    def _arrived(self, tensor: Any, value: Any) -> None:
        for entry in self._waiting:
            if entry[0]() is tensor:
                self._waiting.remove(entry)
                entry[1](value)
                return

    def forget(self) -> int:
        """How many never arrived."""
        count = len(self._waiting)
        self._waiting = []
        return count
