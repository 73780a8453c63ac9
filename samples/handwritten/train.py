#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a decoder that is cut by hand over pp x dp x cp x tp processes. It knows of no tool.

One process, or torchrun with pp x dp x cp x tp of them: the same samples, the same weights.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch

from model import Decoder
from parallel import Mesh, contiguous, zigzag

BUGS = ("cp-mask", "no-reduce", "norm-grad-sync")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    for axis in ("pp", "dp", "cp", "tp"):
        add(f"--{axis}", type=int, default=1, help="size of this axis")
    add("--zigzag", action="store_true", help="sequences are cut from both ends over cp")
    add("--sp", action="store_true", help="between blocks sequences are cut over tp, too")
    add("--layers", type=int, default=3)
    add("--width", type=int, default=48)
    add("--heads", type=int, default=8)
    add("--kv-heads", type=int, default=4)
    add("--inner", type=int, default=96)
    add("--length", type=int, default=32)
    add("--vocabulary", type=int, default=96)
    add("--batch", type=int, default=4, help="samples of a micro-batch, over all of dp")
    add("--micro-batches", type=int, default=2)
    add("--iters", type=int, default=2)
    add("--bf16", action="store_true")
    add("--seed", type=int, default=3)
    add("--bug", choices=BUGS, help="train with this silent bug")
    args = parser.parse_args()
    if args.layers < args.pp or args.batch % args.dp or args.kv_heads % args.tp or args.length % (2 * args.cp * args.tp) or (
            args.sp and args.bug == "no-reduce"):
        if int(os.environ.get("RANK", "0")) == 0:
            print("train.py: --layers must be --pp at least, --batch must divide by --dp, --kv-heads by --tp, --length by "
                  "2 x --cp x --tp; --bug no-reduce excludes --sp", file=sys.stderr)
        sys.exit(2)
    return args


def samples(args: argparse.Namespace, number: int) -> torch.Tensor:
    """[batch, length + 1]: a walk through the vocabulary, different for each sample."""
    generator = torch.Generator().manual_seed(args.seed * 7919 + number)
    steps = torch.randint(1, 8, (args.batch, args.length + 1), generator=generator)
    return steps.cumsum(1) % args.vocabulary


def reduce_gradients(model: Decoder, args: argparse.Namespace, mesh: Mesh) -> None:
    tokens = args.batch * args.length * args.micro_batches
    for name, parameter in model.named_parameters():
        whole = "norm" in name or "places" in name
        if args.sp and whole and not (args.bug == "norm-grad-sync" and "norm_mid" in name):
            mesh.sum(parameter.grad, "tp")
        for axis in ("cp", "dp"):
            mesh.sum(parameter.grad, axis)
        parameter.grad /= tokens


def received(batch: torch.Tensor, args: argparse.Namespace, mesh: Mesh) -> torch.Tensor:
    """What the stage before computed of this batch."""
    length = args.length // mesh.size["cp"] // (mesh.size["tp"] if args.sp else 1)
    like = torch.empty(batch.shape[0], length, args.width,
                       dtype=torch.bfloat16 if args.bf16 else torch.float32)
    return mesh.receive(like, -1).requires_grad_()


def train_step(model: Decoder, optimizer: torch.optim.Optimizer, args: argparse.Namespace,
               mesh: Mesh, iteration: int) -> float:
    order = zigzag if args.zigzag else contiguous
    positions = order(mesh.size["cp"], mesh.rank["cp"], args.length)
    total = torch.zeros(())
    optimizer.zero_grad()
    passed = []
    for number in range(args.micro_batches):
        batch = samples(args, iteration * args.micro_batches + number)
        batch = batch.chunk(mesh.size["dp"])[mesh.rank["dp"]]
        given = batch[:, positions] if mesh.first else received(batch, args, mesh)
        result = model(given, batch[:, positions + 1], positions)
        if mesh.last:
            total += result.detach()
        else:
            mesh.send(result.detach(), 1)
        passed.append((given, result))
    for given, result in passed:  # all forward passes come first
        result.backward(None if mesh.last else mesh.receive(torch.empty_like(result), 1))
        if not mesh.first:
            mesh.send(given.grad, -1)
    reduce_gradients(model, args, mesh)
    optimizer.step()
    for axis in ("pp", "cp", "dp"):
        mesh.sum(total, axis)
    return total.item() / (args.batch * args.length * args.micro_batches)


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    mesh = Mesh(args.pp, args.dp, args.cp, args.tp)
    model = Decoder(args, mesh).to(torch.bfloat16 if args.bf16 else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in range(args.iters):
        loss = train_step(model, optimizer, args, mesh, iteration)
        if all(place == 0 for place in mesh.rank.values()):
            print(f"iteration {iteration} loss {loss.hex()}", flush=True)
    mesh.close()


if __name__ == "__main__":
    main()
