# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model whose feed-forward layer is cut over tensor parallel ranks by hand,
with dropout, and with one of the mistakes that no exception tells of.

    cut_by_hand.py [FAULT] [--iters N]       under torchrun, tp = all processes

Dropout of whole activations needs the same random numbers on all ranks, of parts other ones.
"""
from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

VOCABULARY, WIDTH, INNER, LENGTH, BATCH = 48, 32, 64, 8, 4
FAULTS = ("one-seed", "split-seed", "untied", "other-data")


class Sum(torch.autograd.Function):
    """Adds up over the ranks going forward; the gradient is the same on all of them."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Copy(torch.autograd.Function):
    """What all ranks have goes into parts: the gradient is the sum."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class FeedForward(nn.Module):
    def __init__(self, rank: int, size: int, fault: str) -> None:
        super().__init__()
        whole = torch.Generator().manual_seed(3)
        up = torch.randn(INNER, WIDTH, generator=whole) / WIDTH ** 0.5
        down = torch.randn(WIDTH, INNER, generator=whole) / INNER ** 0.5
        self.up = nn.Linear(WIDTH, INNER // size, bias=False)
        self.down = nn.Linear(INNER // size, WIDTH, bias=False)
        self.up.weight.data.copy_(up.chunk(size, 0)[rank])
        self.down.weight.data.copy_(down.chunk(size, 1)[rank])
        self.part_dropout = nn.Dropout(0.1)
        self.dropout = nn.Dropout(0.1)
        self.own = 1 if fault == "one-seed" else 1000 + rank
        self.shared = 1 + rank if fault == "split-seed" else 1
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = self.up(Copy.apply(x)).tanh()
        torch.manual_seed(self.own * 100 + self.calls)
        h = self.part_dropout(h)
        y = Sum.apply(self.down(h))
        torch.manual_seed(self.shared * 100 + self.calls)
        return x + self.dropout(y)


class Model(nn.Module):
    def __init__(self, rank: int, size: int, fault: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.feed_forward = FeedForward(rank, size, fault)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight
        if fault == "untied":
            self.head.weight = nn.Parameter(self.words.weight.detach().clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.feed_forward(self.words(tokens))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", nargs="?", default="", choices=("", *FAULTS))
    parser.add_argument("--iters", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = Model(mesh.get_rank(), mesh.size(), args.fault)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(args.iters):
        seed = 10 * iteration + (mesh.get_rank() if args.fault == "other-data" else 0)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1),
                               generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        scores = model(tokens[:, :-1].contiguous())
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        print(f"iteration {iteration} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
