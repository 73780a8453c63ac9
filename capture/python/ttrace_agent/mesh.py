# SPDX-License-Identifier: Apache-2.0
"""Where this rank stands: mesh axes and process groups, for rank.json and for --init-from.

The program's own statements, in this order: Megatron's parallel state, DeviceMeshes, its process
groups, a DDP over a process group; else the ranks are just numbered.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import adapters
from .adapters import dtensor, megatron
from .groups import axes_of
from .layouts import AxisPosition

Axis = Tuple[str, int, int]  # name, size, coordinate


class Mesh:
    def __init__(self, torch: Any):
        self._torch = torch
        self.device_meshes: List[Any] = []  # weak references, in order of creation
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

    def _device_mesh_axes(self, roots: List[Any]) -> List[Axis]:
        found: Dict[str, Axis] = {}
        for mesh in filter(None, (reference() for reference in self.device_meshes)):
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
