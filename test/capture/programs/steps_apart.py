# SPDX-License-Identifier: Apache-2.0
"""Each rank steps its part of the parameters, with a closure, and sends the result to the others.

--lost: one tensor is not sent. On one rank all is stepped there.
"""
import sys

import torch
import torch.distributed as dist
from torch import nn


def main():
    lost = "--lost" in sys.argv
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rank, world = 0, 1
    if "--two" in sys.argv:
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    parameters = list(model.parameters())
    owners = [number % world for number in range(len(parameters))]
    optimizer = torch.optim.SGD([p for p, owner in zip(parameters, owners) if owner == rank], lr=0.5)
    generator = torch.Generator().manual_seed(3)
    for iteration in range(2):
        samples = torch.randn(8, 8, generator=generator)
        mine = samples.chunk(world)[rank]

        def closure():
            for parameter in parameters:
                parameter.grad = None
            loss = model(mine).square().mean()
            loss.backward()
            for parameter in parameters:
                if world > 1:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world
            return loss

        optimizer.step(closure)
        for number, (parameter, owner) in enumerate(zip(parameters, owners)):
            if world > 1 and not (lost and number == 2):
                dist.broadcast(parameter.data, owner)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
