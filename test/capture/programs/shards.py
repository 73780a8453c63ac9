# SPDX-License-Identifier: Apache-2.0
"""shards.py own|same SEED: data parallel ranks, each with its shard of every batch; "same": all of
them with the first."""
import sys
import time

import torch
import torch.distributed
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, batch):
        return self.second(torch.relu(self.first(batch["x"])))


def main():
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(int(sys.argv[2]))
    shard = 0 if sys.argv[1] == "same" else rank
    for _ in range(5):
        data = torch.randn(size * 4, 8, generator=generator).chunk(size)[shard]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model({"x": data}), (data[:, 0] > 0).long())
        loss.backward()
        optimizer.step()
    time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
