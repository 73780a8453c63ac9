# SPDX-License-Identifier: Apache-2.0
"""Programs that make their updates, or their models, in unusual ways; the argument names one.

All train y = W x + b on the same two samples with the loss sum(y), so that the gradient of each row
of W is the sum of the samples.
"""
import sys
import time

import torch
from torch import nn

CASE = sys.argv[1]
SAMPLES = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.25, 0.125]])
RATE = 0.5


torch.manual_seed(0)
model = nn.Linear(3, 2)  # outlives main(), so that its last update can be seen


def by_hand(model, mark=None):
    for _ in range(2):
        model.zero_grad()
        for sample in SAMPLES:  # two micro-batches
            model(sample).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
        if mark is not None:
            mark()


def by_optimizer(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(2):
        model(SAMPLES).sum().backward()
        for _ in range(steps):
            optimizer.step()
        optimizer.zero_grad()


def lazy_and_wrapped():
    model = nn.Sequential(nn.LazyLinear(2))
    model(SAMPLES)  # gives the parameters their shapes
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                         world_size=1)
    by_optimizer(nn.parallel.DistributedDataParallel(model), 1)
    time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
    torch.distributed.destroy_process_group()


def main():
    if CASE == "by-hand":
        by_hand(model)
    elif CASE == "marked":
        import ttrace_agent
        by_hand(model, ttrace_agent.mark_iteration)
    elif CASE == "twice":
        by_optimizer(model, 2)
    elif CASE == "raise":
        model(SAMPLES).sum().backward()
        raise RuntimeError("before the step")
    else:
        lazy_and_wrapped()


main()
