# SPDX-License-Identifier: Apache-2.0
"""A model whose mesh no name explains: meshes.py MODE.

default: fully_shard without a mesh. hybrid: fully_shard over a mesh of two dimensions. plan: tensor
parallel inside, fully_shard outside. groups: a DDP over every other rank, as new_group makes them.
experts: a plan of one's own over a mesh, of which nothing is known.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

MODE = sys.argv[1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def parallelise(model, rank, ranks):
    if MODE == "groups":
        groups = [dist.new_group(list(range(first, ranks, 2))) for first in range(2)]
        return nn.parallel.DistributedDataParallel(model, process_group=groups[rank % 2])
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    from torch.distributed.tensor.parallel.style import ParallelStyle
    if MODE == "default":
        fully_shard(model)
    if MODE == "hybrid":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("a", "b")))
    if MODE == "plan":
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("a", "b"))
        parallelize_module(model, mesh["b"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["a"])
    if MODE == "experts":
        class Dealt(ParallelStyle):
            def _apply(self, module, device_mesh):
                return module

        model.mesh = init_device_mesh("cpu", (ranks,))  # kept, as programs do
        parallelize_module(model, model.mesh, {"up": Dealt()})
    return model


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = parallelise(Model(), rank, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
