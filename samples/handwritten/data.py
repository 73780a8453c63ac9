# SPDX-License-Identifier: Apache-2.0
"""What this rank computes on: rows of samples, or with --packed one row of documents."""

from __future__ import annotations

import argparse
from typing import List, NamedTuple, Optional

import torch

from parallel import Mesh, by_document, contiguous, zigzag

UNIT = 8  # documents are padded to a multiple of it, so that each can be cut from both ends


class MicroBatch(NamedTuple):
    tokens: torch.Tensor  # [rows, this rank's part of the sequence]
    targets: torch.Tensor
    positions: torch.Tensor  # of this rank's part, in the sample or in the document
    documents: Optional[torch.Tensor]  # where each begins, and the end


def walk(generator: torch.Generator, rows: int, length: int, vocabulary: int) -> torch.Tensor:
    """[rows, length + 1]: walks through the vocabulary, each a different one."""
    steps = torch.randint(1, 8, (rows, length + 1), generator=generator)
    return steps.cumsum(1) % vocabulary


def numbers(args: argparse.Namespace, mesh: Mesh, iteration: int) -> List[int]:
    """This rank's micro-batches. Rows of one are cut over dp; packed ones are dealt out."""
    first = iteration * args.micro_batches
    step = mesh.size["dp"] if args.packed else 1
    return list(range(first + mesh.rank["dp"] % step, first + args.micro_batches, step))


def micro_batch(args: argparse.Namespace, mesh: Mesh, number: int) -> MicroBatch:
    generator = torch.Generator().manual_seed(args.seed * 7919 + number)
    order = zigzag if args.zigzag else contiguous
    if args.packed:
        return packed(args, mesh, generator, order)
    own = order(mesh.size["cp"], mesh.rank["cp"], args.length)
    rows = walk(generator, args.batch, args.length, args.vocabulary)
    rows = rows.chunk(mesh.size["dp"])[mesh.rank["dp"]]
    return MicroBatch(rows[:, own], rows[:, own + 1], own, None)


def packed(args: argparse.Namespace, mesh: Mesh, generator: torch.Generator,
           order: object) -> MicroBatch:
    """Documents of random lengths, each of which the ranks of cp share."""
    lengths: List[int] = []
    total = args.batch * args.length
    while sum(lengths) < total:
        units = int(torch.randint(1, args.length // UNIT + 1, (), generator=generator))
        lengths.append(min(units * UNIT, total - sum(lengths)))
    documents = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    own = by_document(order, documents)(mesh.size["cp"], mesh.rank["cp"], total)
    walks = [walk(generator, 1, length, args.vocabulary) for length in lengths]
    tokens = torch.cat([each[:, :-1] for each in walks], 1)
    targets = torch.cat([each[:, 1:] for each in walks], 1)
    positions = torch.cat([torch.arange(length) for length in lengths])
    if args.bug == "packed-positions":
        positions = torch.arange(total)
    return MicroBatch(tokens[:, own], targets[:, own], positions[own], documents)
