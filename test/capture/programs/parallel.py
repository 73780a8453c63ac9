# SPDX-License-Identifier: Apache-2.0
"""One small model on one or two ranks: single, ddp, tp (DTensor), fsdp (FSDP2), manual.

"manual" cuts a weight by hand, a plain parameter that says nothing about it, and sums the partial
outputs in place, as much code does. Every rank saves what it computed to FILE.RANK.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

MODE, FILE = sys.argv[1:3]


def place():
    """(rank, ranks)"""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class CutColumns(nn.Module):
    """y = sum over ranks of x[part] W[:, part]^T"""

    def __init__(self, whole):
        super().__init__()
        rank, ranks = place()
        self.partial = nn.Linear(whole.in_features // ranks, whole.out_features, bias=False)
        with torch.no_grad():
            self.partial.weight.copy_(whole.weight.chunk(ranks, 1)[rank])

    def forward(self, x):
        rank, ranks = place()
        y = self.partial(x.chunk(ranks, -1)[rank])
        summed = y.detach()
        dist.all_reduce(summed)  # in place: y and summed are one storage, one version
        return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.up = nn.Linear(8, 12, bias=False)
        self.down = nn.Linear(12, 8, bias=False)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens):
        return self.norm(self.down(torch.relu(self.up(self.embedding(tokens)))))


def parallelise(model):
    if MODE == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if MODE == "manual":
        model.down = CutColumns(model.down)
    if MODE in ("tp", "fsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (place()[1],), mesh_dim_names=(
            "tp" if MODE == "tp" else "dp",))
    if MODE == "fsdp":
        from torch.distributed.fsdp import fully_shard
        fully_shard(model.up, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if MODE == "tp":
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)
        parallelize_module(model, mesh, {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def main():
    rank, ranks = place()
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0 if MODE == "single" else 1)  # no two start alike by chance
    model = parallelise(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    data = torch.Generator().manual_seed(5)
    saved = {}
    for iteration in range(2):
        for microbatch in range(2):
            tokens = torch.randint(16, (2, 3), generator=data)
            if MODE in ("ddp", "fsdp"):
                tokens = (tokens + rank) % 16
            output = model(tokens)
            (output * torch.arange(8.0)).square().mean().backward()
            saved[f"output{iteration}{microbatch}"] = output.detach().clone()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            saved[f"grad{iteration} {name}"] = getattr(gradient, "_local_tensor", gradient).clone()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(output.sum().item().hex())
    torch.save(saved, f"{FILE}.{rank}")
    if ranks > 1:
        time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
