# SPDX-License-Identifier: Apache-2.0
"""A decoder whose every cut is written by hand; see README.md for which tensor is cut how.

Weights are slices of full ones, which depend on their names and the seed alone.
"""

from __future__ import annotations

import argparse
import zlib
from typing import Any, List, Optional

import torch
from torch import nn
from torch.nn import functional as F

from parallel import (Mesh, by_document, contiguous, counted_once, gathered, scattered, shared,
                      summed, zigzag)


def seeded(name: str, rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1000003 + zlib.crc32(name.encode()))
    return torch.randn(rows, columns, generator=generator) / columns ** 0.5


class Matrix(nn.Module):
    """x W^T with some rows, or some columns, of a full weight. What columns give is an addend."""

    def __init__(self, full: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(full.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight)


class Norm(nn.Module):
    """Root mean square; its weight is one for all ranks, its gradient is summed in train.py."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


class Table(nn.Module):
    """Some rows of a vocabulary; tokens of other ranks are zero. The result is an addend."""

    def __init__(self, full: torch.Tensor, mesh: Mesh):
        super().__init__()
        self.rows = full.shape[0] // mesh.size["tp"]
        self.first = self.rows * mesh.rank["tp"]
        self.weight = nn.Parameter(full[self.first:self.first + self.rows].clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        own = tokens - self.first
        other = (own < 0) | (own >= self.rows)
        found = F.embedding(own.masked_fill(other, 0), self.weight)
        return found.masked_fill(other[..., None], 0)


class Core(nn.Module):
    """Causal attention of this rank's queries and heads over the keys of all cp ranks.

    Of packed documents each sees itself alone.
    """

    def __init__(self, args: argparse.Namespace, mesh: Mesh):
        super().__init__()
        self.args, self.mesh = args, mesh

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                positions: torch.Tensor,
                documents: Optional[torch.Tensor] = None) -> torch.Tensor:
        order = zigzag if self.args.zigzag else contiguous
        if documents is not None:
            order = by_document(order, documents)
        k, v = (gathered(t, self.mesh, "cp", 1, order) for t in (k, v))
        repeats = q.shape[2] // k.shape[2]
        k, v = (t.repeat_interleave(repeats, 2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        hidden = self.hidden(order, k.shape[1], positions, documents)
        weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1).to(q.dtype)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)

    def hidden(self, order: Any, length: int, positions: torch.Tensor,
               documents: Optional[torch.Tensor]) -> torch.Tensor:
        """Which of all keys each of the rank's queries must not see."""
        keys = torch.arange(length)
        own = order(self.mesh.size["cp"], self.mesh.rank["cp"], length)
        limit = own if self.args.bug != "cp-mask" else torch.arange(len(positions))
        later = keys[None, :] > limit[:, None]
        if documents is None or self.args.bug == "packed-mask":
            return later
        numbers = torch.bucketize(keys, documents, right=True)
        return later | (numbers[None, :] != numbers[own][:, None])


class Block(nn.Module):
    def __init__(self, name: str, args: argparse.Namespace, mesh: Mesh):
        super().__init__()
        self.args, self.mesh = args, mesh
        self.is_wrong = args.bug == "no-reduce" and name == "blocks.1."
        width, tp = args.width, mesh.size["tp"]
        self.head = width // args.heads
        self.sections = [width // tp, args.kv_heads * self.head // tp] + [
            args.kv_heads * self.head // tp]
        self.norm_in = Norm(width)
        self.pack = Matrix(self.part(name + "pack", [width] + 2 * [args.kv_heads * self.head]))
        self.core = Core(args, mesh)
        self.merge = Matrix(seeded(name + "merge", width, width, args.seed).chunk(tp, 1)[
            mesh.rank["tp"]])
        self.norm_mid = Norm(width)
        self.gate_up = Matrix(self.part(name + "gate_up", [args.inner, args.inner]))
        self.down = Matrix(seeded(name + "down", width, args.inner, args.seed).chunk(tp, 1)[
            mesh.rank["tp"]])

    def part(self, name: str, sections: List[int]) -> torch.Tensor:
        """This rank's share of each of the sections of a fused weight."""
        full = seeded(name, sum(sections), self.args.width, self.args.seed)
        return torch.cat([section.chunk(self.mesh.size["tp"])[self.mesh.rank["tp"]]
                          for section in full.split(sections)])

    def forward(self, x: torch.Tensor, positions: torch.Tensor,
                documents: Optional[torch.Tensor] = None) -> torch.Tensor:
        q, k, v = self.pack(self.enter(self.norm_in(x))).split(self.sections, -1)
        q, k, v = (t.unflatten(-1, (-1, self.head)) for t in (q, k, v))
        x = x + self.leave(self.merge(self.core(q, k, v, positions, documents)))
        gate, up = self.gate_up(self.enter(self.norm_mid(x))).chunk(2, -1)
        return x + self.leave(self.down(F.silu(gate) * up), self.is_wrong)

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """Into a region that tp ranks share by features."""
        if self.args.sp:
            return gathered(x, self.mesh, "tp", 1, contiguous)
        return shared(x, self.mesh, "tp")

    def leave(self, addend: torch.Tensor, lost: bool = False) -> torch.Tensor:
        if lost:
            return addend
        if self.args.sp:
            return scattered(addend, self.mesh, "tp", 1)
        return summed(addend, self.mesh, "tp")


class Decoder(nn.Module):
    """One stage of it: its blocks are counted from 0 on every stage."""

    def __init__(self, args: argparse.Namespace, mesh: Mesh):
        super().__init__()
        self.args, self.mesh = args, mesh
        if mesh.first:
            self.words = Table(seeded("words", args.vocabulary, args.width, args.seed), mesh)
            places = args.length * (args.batch if args.packed else 1)
            self.places = nn.Embedding.from_pretrained(
                seeded("places", places, args.width, args.seed), freeze=False)
        own = torch.arange(args.layers).chunk(mesh.size["pp"])[mesh.rank["pp"]].tolist()
        self.blocks = nn.ModuleList([Block(f"blocks.{i}.", args, mesh) for i in own])
        if mesh.last:
            self.norm_out = Norm(args.width)
            self.scores = Matrix(seeded("scores", args.vocabulary, args.width, args.seed).chunk(
                mesh.size["tp"])[mesh.rank["tp"]])

    def forward(self, x: torch.Tensor, targets: torch.Tensor, positions: torch.Tensor,
                documents: Optional[torch.Tensor] = None) -> torch.Tensor:
        """`x`: tokens, or what the stage before returned. The sum of this rank's losses, of which
        all ranks of tp go on with the same; on other stages than the last what the next one gets.
        """
        block = self.blocks[0]
        if self.mesh.first:
            own = contiguous(self.mesh.size["tp"], self.mesh.rank["tp"], len(positions))
            x = block.leave(self.words(x)) + self.places(
                positions[own] if self.args.sp else positions)
        for block in self.blocks:
            x = block(x, positions, documents)
        if not self.mesh.last:
            return x
        logits = self.scores(block.enter(self.norm_out(x)))
        logits = counted_once(gathered(logits, self.mesh, "tp", 2, contiguous), self.mesh, "tp")
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
