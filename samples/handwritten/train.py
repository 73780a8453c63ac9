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

from data import UNIT, micro_batch, numbers
from model import Decoder
from parallel import Mesh

BUGS = ("cp-mask", "no-reduce", "norm-grad-sync", "packed-positions", "packed-mask")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    for axis in ("pp", "dp", "cp", "tp"):
        add(f"--{axis}", type=int, default=1, help="size of this axis")
    add("--zigzag", action="store_true", help="sequences are cut from both ends over cp")
    add("--packed", action="store_true", help="documents of random lengths in one sequence, which "
        "are cut over cp one by one")
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
    dealt = args.micro_batches if args.packed else args.batch
    if args.layers < args.pp or dealt % args.dp or args.kv_heads % args.tp or (
            args.length % (2 * args.cp * args.tp)) or (args.sp and args.bug == "no-reduce"):
        refuse("--layers must be --pp at least, --batch (with --packed --micro-batches) must divide "
               "by --dp, --kv-heads by --tp, --length by 2 x --cp x --tp; --bug no-reduce excludes "
               "--sp")
    if args.packed and (UNIT % (2 * args.cp) or args.length % UNIT or args.bug == "cp-mask"):
        refuse(f"with --packed {UNIT} must divide by 2 x --cp, and --length by {UNIT}; --bug "
               "cp-mask excludes it")
    if not args.packed and str(args.bug).startswith("packed"):
        refuse(f"--bug {args.bug} needs --packed")
    return args


def refuse(why: str) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"train.py: {why}", file=sys.stderr)
    sys.exit(2)


def reduce_gradients(model: Decoder, args: argparse.Namespace, mesh: Mesh) -> None:
    tokens = args.batch * args.length * args.micro_batches
    for name, parameter in model.named_parameters():
        whole = "norm" in name or "places" in name
        if args.sp and whole and not (args.bug == "norm-grad-sync" and "norm_mid" in name):
            mesh.sum(parameter.grad, "tp")
        for axis in ("cp", "dp"):
            mesh.sum(parameter.grad, axis)
        parameter.grad /= tokens


def received(tokens: torch.Tensor, args: argparse.Namespace, mesh: Mesh) -> torch.Tensor:
    """What the stage before computed of them."""
    rows, length = tokens.shape
    like = torch.empty(rows, length // (mesh.size["tp"] if args.sp else 1), args.width,
                       dtype=torch.bfloat16 if args.bf16 else torch.float32)
    return mesh.receive(like, -1).requires_grad_()


def train_step(model: Decoder, optimizer: torch.optim.Optimizer, args: argparse.Namespace,
               mesh: Mesh, iteration: int) -> float:
    total = torch.zeros(())
    optimizer.zero_grad()
    passed = []
    for number in numbers(args, mesh, iteration):
        batch = micro_batch(args, mesh, number)
        given = batch.tokens if mesh.first else received(batch.tokens, args, mesh)
        result = model(given, batch.targets, batch.positions, batch.documents)
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
