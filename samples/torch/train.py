#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the CPU, in one process or, under torchrun, in dp x tp processes.

Every layout starts from the same weights and sees the same samples, so the printed losses agree up
to rounding, and the same command prints the same lines. torch is imported after the arguments are
checked: wrong ones and --help answer at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import bugs


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--dp", type=int, default=1, help="data parallel size")
    add("--tp", type=int, default=1, help="tensor parallel size")
    add("--sp", action="store_true", help="cut activations along the sequence between sublayers")
    add("--fsdp", action="store_true", help="shard over dp (FSDP2) instead of replicating")
    add("--fsdp1", nargs="?", const="original", choices=["original", "joined"],
        help="the same with FSDP1; joined: without use_orig_params")
    add("--mixed", action="store_true", help="sharded: compute in bf16, reduce and update in fp32")
    add("--replicas", type=int, default=1, help="replicate what is sharded over dp / REPLICAS")
    add("--zero", action="store_true", help="each rank of dp updates some of the parameters")
    add("--layers", type=int, default=4)
    add("--hidden", type=int, default=64)
    add("--heads", type=int, default=4)
    add("--seq", type=int, default=32)
    add("--vocab", type=int, default=128)
    add("--micro-batch-size", type=int, help="samples per rank and pass")
    add("--global-batch-size", type=int, default=4, help="samples per iteration")
    add("--accumulate", type=int, help="micro-batches per iteration")
    add("--iters", type=int, default=2)
    add("--lr", type=float, help="default 1e-3 for adamw, 0.1 for sgd")
    add("--optimizer", choices=["adamw", "sgd"], default="adamw")
    add("--clip-grad", type=float, default=1.0, help="largest gradient norm; 0: no clipping")
    precision = parser.add_mutually_exclusive_group()
    precision.add_argument("--bf16", action="store_true", help="weights and activations in bf16")
    precision.add_argument("--amp", action="store_true",
                           help="weights in fp32, matrix products in bf16 (autocast)")
    precision.add_argument("--fp64", action="store_true", help="weights and activations in fp64")
    add("--checkpoint", choices=["reentrant", "non-reentrant"], help="recompute activations")
    add("--seed", type=int, default=1)
    add("--bug", choices=sorted(bugs.NEEDS), help="train with this silent bug")
    add("--bug-layer", type=int, default=1)
    args = parser.parse_args()
    settle_batch(args)
    problem = batch_complaint(args) or layout_complaint(args) or bugs.complaint(args)
    if problem:
        refuse(problem)
    return args


def refuse(problem: str) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"train.py: {problem}", file=sys.stderr)
    sys.exit(2)


def settle_batch(args: argparse.Namespace) -> None:
    """Global batch = dp x micro-batch x accumulate; what is not given follows from the rest."""
    if args.accumulate is None and args.micro_batch_size is None:
        args.accumulate = 1
    if args.accumulate is None:
        args.accumulate = args.global_batch_size // max(1, args.dp * args.micro_batch_size)
    if args.micro_batch_size is None:
        args.micro_batch_size = args.global_batch_size // max(1, args.dp * args.accumulate)
    if args.lr is None:
        args.lr = 1e-3 if args.optimizer == "adamw" else 0.1


def batch_complaint(args: argparse.Namespace) -> str | None:
    for name in ("dp", "tp", "layers", "hidden", "heads", "seq", "vocab", "global_batch_size"):
        if getattr(args, name) < 1:
            return f"--{name.replace('_', '-')} must be at least 1"
    if args.dp * args.micro_batch_size * args.accumulate != args.global_batch_size:
        return (f"--global-batch-size {args.global_batch_size} is not --dp {args.dp} x "
                f"--micro-batch-size {args.micro_batch_size} x --accumulate {args.accumulate}")
    return None


def layout_complaint(args: argparse.Namespace) -> str | None:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if args.dp * args.tp != world:
        needed = args.dp * args.tp
        return (f"--dp {args.dp} x --tp {args.tp} needs {needed} processes, not {world}: start "
                f"it with torchrun --nproc-per-node {needed} or change --dp and --tp")
    if args.hidden % args.heads:
        return f"--hidden {args.hidden} does not divide by --heads {args.heads}"
    for name in ("heads", "vocab") + (("seq",) if args.sp else ()):
        if getattr(args, name) % args.tp:
            return f"--{name} {getattr(args, name)} does not divide by --tp {args.tp}"
    if args.sp and args.tp == 1:
        return "--sp needs --tp above 1"
    return sharding_complaint(args)


def sharding_complaint(args: argparse.Namespace) -> str | None:
    sharded = bool(args.fsdp) + bool(args.fsdp1) + args.zero
    if sharded and args.dp == 1 and not args.mixed:
        return "--fsdp, --fsdp1 and --zero need --dp above 1"
    if args.mixed and not (args.fsdp or args.fsdp1):
        return "--mixed needs --fsdp or --fsdp1"
    if sharded > 1:
        return "--fsdp, --fsdp1 and --zero exclude each other"
    if args.zero and args.tp > 1:
        return "--zero goes with --tp 1"
    if args.fsdp1 and args.tp > 1 and args.clip_grad > 0:
        return "FSDP1 clips by the norm over dp alone: with --tp give --clip-grad 0"
    if args.replicas < 1 or args.dp % args.replicas:
        return f"--dp {args.dp} does not divide by --replicas {args.replicas}"
    if args.replicas > 1 and not (args.fsdp or args.fsdp1):
        return "--replicas needs --fsdp or --fsdp1"
    return None


def sample(args: argparse.Namespace, index: int) -> Any:
    """Sample `index` of the endless data set: a walk over the vocabulary in steps of 1 to 3.

    There is something to learn (from log(vocab) down to log(3)), and every layout draws the same.
    """
    import torch
    generator = torch.Generator().manual_seed(args.seed * 1_000_003 + index)
    start = torch.randint(args.vocab, (1,), generator=generator)
    steps = torch.randint(1, 4, (args.seq + 1,), generator=generator)
    return (start + steps.cumsum(0)) % args.vocab


def micro_batch(args: argparse.Namespace, iteration: int, number: int, dp_rank: int) -> Any:
    import torch
    size = args.micro_batch_size
    first = iteration * args.global_batch_size + (number * args.dp + dp_rank) * size
    rows = torch.stack([sample(args, first + i) for i in range(size)])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def make_optimizer(args: argparse.Namespace, model: Any) -> Any:
    import torch
    kind = torch.optim.SGD if args.optimizer == "sgd" else torch.optim.AdamW
    if args.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(model.parameters(), kind, lr=args.lr)
    return kind(model.parameters(), lr=args.lr)


def build(args: argparse.Namespace, mesh: Any) -> Any:
    import torch
    import model as gpt
    import parallel
    model = gpt.GPT(bugs.layers_to_build(args), args.hidden, args.heads, args.seq, args.vocab,
                    recompute=args.checkpoint)
    gpt.initialise(model, args.seed)
    if args.bf16 or args.fp64:
        model.to(torch.bfloat16 if args.bf16 else torch.float64)
    model = parallel.parallelise(model, mesh, args)
    bugs.apply(args, model)
    return model


def train(args: argparse.Namespace, mesh: Any) -> None:
    import torch

    import parallel
    model = build(args, mesh)
    optimizer = make_optimizer(args, model)
    dp_rank = parallel.data_parallel_rank(mesh)
    for iteration in range(args.iters):
        optimizer.zero_grad()
        loss_sum = 0.0
        for number in range(args.accumulate):
            tokens, labels = micro_batch(args, iteration, number, dp_rank)
            with parallel.gradient_sync(model, wanted=number == args.accumulate - 1):
                with torch.autocast("cpu", torch.bfloat16, enabled=args.amp):
                    loss = model(tokens, labels)
                (loss / args.accumulate).backward()
            loss_sum += loss.item()
        norm = parallel.clip_gradients(model, args.clip_grad) if args.clip_grad > 0 else 0.0
        optimizer.step()
        loss_mean = parallel.mean_over_ranks(loss_sum / args.accumulate, mesh)
        report(iteration, loss_mean, norm)


def report(iteration: int, loss: float, norm: float) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"iteration {iteration} loss {loss.hex()} ({loss:.6f}) "
              f"grad_norm {norm.hex()} ({norm:.6f})", flush=True)


def main() -> None:
    args = parse_arguments()
    # More threads buy nothing at this size and could change the order of sums.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import parallel
    torch.set_num_threads(1)
    mesh = parallel.start(args)
    train(args, mesh)
    parallel.stop(mesh)


if __name__ == "__main__":
    main()
