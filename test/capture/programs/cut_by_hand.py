# SPDX-License-Identifier: Apache-2.0
"""A fused weight, rows for q, k and v of unequal sizes, each of which is cut over the ranks."""
import os

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.fused = nn.Parameter(torch.randn(8 // ranks, 3))

    def forward(self, x):
        return x @ self.fused.t()


def main():
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(ranks)
    model = Model(ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
