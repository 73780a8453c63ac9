# SPDX-License-Identifier: Apache-2.0
"""Ranks, their groups, and the collectives that the model is cut with, in plain torch.distributed.

Rank = (pp, dp, cp, tp), tp innermost. Each function below is a pair: what it does forward, and its
transpose backward.
"""

from __future__ import annotations

from typing import Any, List

import torch
import torch.distributed as dist


class Mesh:
    """This rank's place; sizes of 1 need no group."""

    def __init__(self, pp: int, dp: int, cp: int, tp: int):
        self.size = {"pp": pp, "dp": dp, "cp": cp, "tp": tp}
        world = pp * dp * cp * tp
        if world > 1:
            dist.init_process_group("gloo")
        rank = dist.get_rank() if world > 1 else 0
        strides = {"tp": 1, "cp": tp, "dp": tp * cp, "pp": tp * cp * dp}
        self.rank = {axis: rank // stride % self.size[axis] for axis, stride in strides.items()}
        self.first = self.rank["pp"] == 0
        self.last = self.rank["pp"] == pp - 1
        self._stage = strides["pp"]  # ranks between a stage and the next
        self._groups = {}
        for axis, stride in strides.items():
            size = self.size[axis]
            for first in range(world):
                if size == 1 or first // stride % size:
                    continue
                members = [first + stride * i for i in range(size)]
                group = dist.new_group(members)
                if rank in members:
                    self._groups[axis] = group

    def sum(self, tensor: torch.Tensor, axis: str) -> torch.Tensor:
        """In place."""
        if self.size[axis] > 1:
            dist.all_reduce(tensor, group=self._groups[axis])
        return tensor

    def gather(self, tensor: torch.Tensor, axis: str) -> List[torch.Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.size[axis])]
        dist.all_gather(parts, tensor.contiguous(), group=self._groups[axis])
        return parts

    def send(self, tensor: torch.Tensor, stages: int) -> None:
        """To the rank that stands for this one so many stages on."""
        dist.send(tensor.contiguous(), dist.get_rank() + stages * self._stage)

    def receive(self, like: torch.Tensor, stages: int) -> torch.Tensor:
        dist.recv(like, dist.get_rank() + stages * self._stage)
        return like

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, there: Any, back: Any) -> torch.Tensor:
        context.back = back
        return there(tensor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return context.back(gradient), None, None


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view_as(tensor)


def shared(tensor: torch.Tensor, mesh: Mesh, axis: str) -> torch.Tensor:
    """What all ranks of the axis use: their gradients are summed."""
    return _Pair.apply(tensor, _same, lambda g: mesh.sum(g.clone(), axis))


def summed(tensor: torch.Tensor, mesh: Mesh, axis: str) -> torch.Tensor:
    """The sum over the ranks; each of them uses all of it, the same way."""
    return _Pair.apply(tensor, lambda t: mesh.sum(t.clone(), axis), _same)


def counted_once(tensor: torch.Tensor, mesh: Mesh, axis: str) -> torch.Tensor:
    """What all ranks go on with in the same way, to one result that counts once."""
    return _Pair.apply(tensor, _same, lambda g: g / mesh.size[axis])


def gathered(tensor: torch.Tensor, mesh: Mesh, axis: str, dim: int, order: Any) -> torch.Tensor:
    """All parts of `dim`, put into their places; backward each rank gets the sum of its part."""
    if mesh.size[axis] == 1:
        return tensor
    places = [order(mesh.size[axis], r, tensor.shape[dim] * mesh.size[axis])
              for r in range(mesh.size[axis])]

    def there(part: torch.Tensor) -> torch.Tensor:
        shape = list(part.shape)
        shape[dim] *= mesh.size[axis]
        whole = part.new_empty(shape)
        for place, piece in zip(places, mesh.gather(part, axis)):
            whole.index_copy_(dim, place, piece)
        return whole

    def back(gradient: torch.Tensor) -> torch.Tensor:
        return mesh.sum(gradient.clone(), axis).index_select(dim, places[mesh.rank[axis]])

    return _Pair.apply(tensor, there, back)


def scattered(tensor: torch.Tensor, mesh: Mesh, axis: str, dim: int) -> torch.Tensor:
    """Each rank its part of the sum over the ranks; backward all parts come together."""
    if mesh.size[axis] == 1:
        return tensor

    def there(addend: torch.Tensor) -> torch.Tensor:
        return mesh.sum(addend.clone(), axis).chunk(mesh.size[axis], dim)[mesh.rank[axis]].clone()

    def back(gradient: torch.Tensor) -> torch.Tensor:
        return torch.cat(mesh.gather(gradient, axis), dim)

    return _Pair.apply(tensor, there, back)


def contiguous(size: int, rank: int, extent: int) -> torch.Tensor:
    """Which positions a rank has."""
    return torch.arange(extent).chunk(size)[rank]


def zigzag(size: int, rank: int, extent: int) -> torch.Tensor:
    """One part from each end, so that causal attention is as much work for each rank."""
    chunks = torch.arange(extent).chunk(2 * size)
    return torch.cat([chunks[rank], chunks[2 * size - 1 - rank]])


def by_document(order: Any, documents: torch.Tensor) -> Any:
    """The order that takes each document by itself; `documents`: where each begins, and the end."""
    edges = documents.tolist()

    def own(size: int, rank: int, extent: int) -> torch.Tensor:
        assert edges[-1] == extent
        return torch.cat([begin + order(size, rank, end - begin)
                          for begin, end in zip(edges, edges[1:])])

    return own
