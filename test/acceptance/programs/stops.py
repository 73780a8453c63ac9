# SPDX-License-Identifier: Apache-2.0
"""Data parallel training that ends in a collective: MODE says what rank 1 does in iteration 2.

skip: leaves a reduction out. raise, exit: ends. sleep: computes for ever. crossed: calls two
groups' collectives in the other order. loader: fails before the next step. none: as the others.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

MODE = sys.argv[1]


def before_reduction(rank: int, step: int, number: int) -> bool:
    """Whether the gradient is reduced."""
    if (rank, step, number) != (1, 2, 1):
        return True
    if MODE == "raise":
        raise ValueError("a bad sample")
    if MODE == "exit":
        os._exit(3)
    if MODE == "sleep":
        time.sleep(1000)
    return MODE != "skip"


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(size)), timeout=datetime.timedelta(seconds=4))
              for _ in range(2)]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if (MODE, rank, step) == ("loader", 1, 2):
            raise OSError("a file is gone")
        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        model(data).square().mean().backward()
        for number, parameter in enumerate(model.parameters()):
            if before_reduction(rank, step, number):
                dist.all_reduce(parameter.grad)
                parameter.grad /= size
        crossed = MODE == "crossed" and (rank, step) == (1, 2)
        for group in reversed(groups) if crossed else groups:
            dist.all_reduce(torch.ones(20) * rank, group=group)
        optimizer.step()
        optimizer.zero_grad()
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
