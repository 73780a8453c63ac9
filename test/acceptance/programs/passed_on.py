# SPDX-License-Identifier: Apache-2.0
"""Blocks that hand on a bias which the first of them made, as relative positions are; FSDP2 over
all ranks, if there are several. Wrapped blocks see another tensor of the same storage."""
import os

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.bias = nn.Embedding(4, 8) if first else None

    def forward(self, x, bias=None):
        if bias is None:
            bias = self.bias(torch.arange(4))
        return x + torch.tanh(self.linear(x) + bias), bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([Block(number == 0) for number in range(3)])

    def forward(self, tokens):
        x, bias = self.words(tokens), None
        for block in self.blocks:
            x, bias = block(x, bias=bias)
        return x.square().mean()


def main():
    torch.manual_seed(0)
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    model = Model()
    if ranks > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(16, (4, 4), generator=torch.Generator().manual_seed(1))
    model(tokens.chunk(ranks)[rank]).backward()
    optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
