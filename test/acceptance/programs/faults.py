# SPDX-License-Identifier: Apache-2.0
"""Trains a small classifier, with one of the mistakes that no exception tells of.

    faults.py [FAULT] [--iters N] [--bf16] [--optimizer adamw|sgd] [--average]

In several processes (torchrun) it is data parallel: DistributedDataParallel over gloo. Without a
FAULT it is healthy. `--average` keeps a frozen moving average of the body, as some methods do.
"""
from __future__ import annotations

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, CLASSES, LENGTH, BATCH = 64, 32, 16, 12, 6
FAULTS = ("same-shard", "clip-one-rank", "no-sync", "unarmed", "no-zero-grad", "not-in-optimizer",
          "detached", "frozen-moves", "replaced", "nan-forward", "nan-backward", "nan-data",
          "twice", "momentum-off", "stale-state", "local-norm", "drift")


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.drop = nn.Dropout(0.1)
        self.fault = ""
        self.step = 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens).mean(1)
        h = F.gelu(self.fc1(x))
        if self.fault == "detached":
            h = h.detach() + 0 * self.fc1.bias.new_zeros(())
        y = self.fc2(h)
        if self.fault == "nan-forward" and self.step == 1:
            y = y + torch.where(torch.arange(WIDTH) == 3, (-y.abs()).log(), y)
        return self.drop(self.norm(x + y))


class Classifier(nn.Module):
    def __init__(self, average: bool) -> None:
        super().__init__()
        self.body = Body()
        self.head = nn.Linear(WIDTH, CLASSES)
        self.spare = nn.Linear(WIDTH, WIDTH)
        self.average = Body() if average else None
        if self.average is not None:
            self.average.load_state_dict(self.body.state_dict())
            self.average.requires_grad_(False)
        self.fault = ""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.body(tokens)
        scores = self.head(x + self.spare(x))
        if self.fault == "nan-backward" and self.body.step == 1:
            scores = scores + (scores - scores.detach()).sum(1, True).abs().sqrt()
        return F.cross_entropy(scores, labels)


def batch(args: argparse.Namespace, iteration: int, rank: int, world: int):
    part = 0 if args.fault == "same-shard" else rank
    generator = torch.Generator().manual_seed(1000 * iteration + part)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
    return tokens, torch.randint(CLASSES, (BATCH,), generator=generator)


def make_optimizer(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    named = [(name, parameter) for name, parameter in model.named_parameters()
             if parameter.requires_grad]
    if args.fault == "not-in-optimizer":
        named = [entry for entry in named if not entry[0].endswith("fc2.weight")]
    parameters = [parameter for _, parameter in named]
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    return torch.optim.AdamW(parameters, lr=1e-2)


def clip(args: argparse.Namespace, model: nn.Module, rank: int) -> None:
    if args.fault == "clip-one-rank" and rank != 0:
        return
    if args.fault == "local-norm" and rank != 0:
        nn.utils.clip_grad_norm_(list(model.parameters())[:2], 0.1)
        return
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


@torch.no_grad()
def after_step(args: argparse.Namespace, inner: Classifier, optimizer, rank: int) -> None:
    if inner.average is not None:
        for slow, fast in zip(inner.average.parameters(), inner.body.parameters()):
            slow.lerp_(fast, 0.1)
    if args.fault == "frozen-moves":
        inner.spare.weight.mul_(0.999)
    if args.fault == "drift" and rank == 1:
        inner.head.bias[0] += 1e-3
    if args.fault == "stale-state":
        for state in optimizer.state.values():
            state["exp_avg"].zero_()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", nargs="?", default="", choices=("", *FAULTS))
    parser.add_argument("--iters", type=int, default=3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--average", action="store_true")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    args = parser.parse_args()
    torch.set_num_threads(1)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if world > 1 else 0
    torch.manual_seed(1)
    inner = Classifier(args.average)
    if args.bf16:
        inner.to(torch.bfloat16)
    inner.fault = inner.body.fault = args.fault
    if args.fault == "frozen-moves":
        inner.spare.requires_grad_(False)
    optimizer = make_optimizer(args, inner)
    if args.fault == "replaced":
        inner.head.weight = nn.Parameter(inner.head.weight.detach().clone())
    model = nn.parallel.DistributedDataParallel(
        inner, find_unused_parameters=args.fault == "detached") if world > 1 else inner
    torch.manual_seed(100 + rank)
    for iteration in range(args.iters):
        inner.body.step = iteration
        if args.fault != "no-zero-grad":
            optimizer.zero_grad()
        tokens, labels = batch(args, iteration, rank, world)
        if args.fault == "nan-data" and iteration == 1 and rank == world - 1:
            with torch.no_grad():
                inner.body.words.weight[tokens[0, 0]] = float("nan")
        off = args.fault == "no-sync" and world > 1
        with model.no_sync() if off else contextlib.nullcontext():
            loss = (inner if args.fault == "unarmed" else model)(tokens, labels)
            loss.backward()
        clip(args, inner, rank)
        if args.fault == "momentum-off":
            for state in optimizer.state.values():
                if state.get("momentum_buffer") is not None:
                    state["momentum_buffer"].zero_()
        optimizer.step()
        if args.fault == "twice":
            with torch.no_grad():
                inner.head.weight.sub_(1e-2 * inner.head.weight.grad)
        after_step(args, inner, optimizer, rank)
        print(f"iteration {iteration} loss {loss.item():.6f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
