# SPDX-License-Identifier: Apache-2.0
"""Where this rank stands: mesh axes and process groups, for rank.json and for --init-from.

The program's own statements, in this order: Megatron's parallel state, DeviceMeshes, its process
groups, a DDP over a process group; else the ranks are just numbered.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterator, List, Tuple

from . import adapters
from .adapters import dtensor, megatron
from .groups import axes_of, stride_of
from .layouts import AxisPosition

Axis = Tuple[str, int, int]  # name, size, coordinate


def _alive(references: List[Any]) -> Iterator[Any]:
    return filter(None, [reference() for reference in references])


def _lines(mesh: Any) -> List[Tuple[str, FrozenSet[int]]]:
    """Of each axis: the ranks on it with this one."""
    return [(name, frozenset(dtensor.ranks_along(mesh, dim)))
            for dim, name in enumerate(dtensor.axis_names(mesh))]


class Mesh:
    def __init__(self, torch: Any):
        self._torch = torch
        self.device_meshes: List[Any] = []  # weak references, in order of creation
        self.tensor_meshes: List[Any] = []  # likewise, of tensor parallel plans
        self.guessed = False  # the program stated none of the axes that were asked for last

    def rank_and_size(self) -> Tuple[Any, Any]:
        """(None, None) where only the environment can know."""
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return None, None

    def axes(self, roots: List[Any]) -> List[Axis]:
        """Outermost first."""
        rank, size = self.rank_and_size()
        if rank is None:
            return []
        axes = megatron.axes() or self._device_mesh_axes(roots)
        of_groups = [] if axes else axes_of(self.groups().values(), rank, size)
        axes = axes or list(of_groups)
        self._add_data_parallel(axes, roots, size)
        self.guessed = bool(of_groups) or (size > 1 and not axes)
        return axes or ([("rank", size, rank)] if size > 1 else [])

    def positions(self, roots: List[Any]) -> Dict[str, AxisPosition]:
        return {name: AxisPosition(coord, size) for name, size, coord in self.axes(roots)}

    def kinds(self, axes: List[Axis], roots: List[Any]) -> Dict[str, str]:
        """What frameworks use axes for, whatever these are called: "data" or "tensor".

        By name of the axis; an axis that they use for both, or of which they say nothing, is left
        out. An axis is that of a wrapper when both join the same ranks.
        """
        lines: Dict[str, FrozenSet[int]] = {}
        for mesh in _alive(self.device_meshes):
            for name, ranks in _lines(mesh):
                lines.setdefault(name, ranks)
        rank, _ = self.rank_and_size()
        for name, size, coordinate in axes:
            stride = stride_of(name)
            if name not in lines and stride:
                first = rank - coordinate * stride
                lines[name] = frozenset(range(first, first + size * stride, stride))
        data = {frozenset(ranks) for root in roots for info in root.modules
                for ranks in self._data_parallel_ranks(info)}
        tensor = {ranks for mesh in _alive(self.tensor_meshes) for _, ranks in _lines(mesh)}
        return {name: "data" if lines[name] in data else "tensor" for name, size, _ in axes
                if size > 1 and name in lines and (lines[name] in data) != (lines[name] in tensor)}

    def _data_parallel_ranks(self, info: Any) -> List[List[int]]:
        module = info.ref()
        return [] if module is None else adapters.data_parallel_ranks(module, self._torch)

    def _device_mesh_axes(self, roots: List[Any]) -> List[Axis]:
        found: Dict[str, Axis] = {}
        for mesh in _alive(self.device_meshes):
            if dtensor.is_root_mesh(mesh):
                for axis in dtensor.positions(mesh):
                    found.setdefault(axis[0], axis)
        for root in roots:  # slices and flattened meshes count where parameters are cut over them
            for info in root.parameters:
                parameter = info.ref()
                if parameter is not None and dtensor.is_dtensor(parameter):
                    for axis in dtensor.positions(parameter.device_mesh):
                        found.setdefault(axis[0], axis)
        return list(found.values())

    def _add_data_parallel(self, axes: List[Axis], roots: List[Any], world_size: int) -> None:
        """A DDP whose group completes the mesh is its outermost axis, "dp"."""
        covered = 1
        for _, size, _ in axes:
            covered *= size
        if covered >= world_size or any(name == "dp" for name, _, _ in axes):
            return
        for root in roots:
            for info in root.modules:
                module = info.ref()
                if module is None:
                    continue
                axis = adapters.data_parallel_axis(module, self._torch)
                if axis is not None and axis[1] * covered == world_size:
                    axes.insert(0, axis)
                    return

    def groups(self) -> Dict[str, List[int]]:
        """The ranks of each process group that this one is in, as far as torch tells."""
        distributed = self._torch.distributed
        if self.rank_and_size()[0] is None:
            return {}
        found = {}
        world = getattr(distributed.distributed_c10d, "_world", None)
        for group, name in getattr(world, "pg_names", {}).items():
            found[str(name)] = sorted(distributed.get_process_group_ranks(group))
        return found
