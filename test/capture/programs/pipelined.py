# SPDX-License-Identifier: Apache-2.0
"""Two stages of torch.distributed.pipelining, two micro-batches, one iteration."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8)), nn.Sequential(nn.Linear(8, 4))]
    stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=lambda output, target: output.sum())
    optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.1)
    tokens = torch.arange(8).view(4, 2)
    if rank == 0:
        schedule.step(tokens)
    else:
        schedule.step(target=tokens, losses=[])
    optimizer.step()
    dist.destroy_process_group()
