# SPDX-License-Identifier: Apache-2.0
"""A fused weight, rows for q, k and v of unequal sizes, each of which is cut over the ranks."""
import os

import torch
import torch.distributed as dist
from torch import nn

WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fused = nn.Parameter(torch.randn(8 // WORLD, 3))

    def forward(self, x):
        return x @ self.fused.t()


if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(WORLD)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
if WORLD > 1:
    dist.destroy_process_group()
