# SPDX-License-Identifier: Apache-2.0
"""Rank 1 ends without a word; rank 0 says what its next collective makes of it: MODE.

blocking, asynchronous, functional: an all_reduce. ddp: that of a bucket.
"""
import os
import re
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

MODE = sys.argv[1]


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
    if MODE == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    loss = model(torch.ones(2, 4)).sum()
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(0)
    time.sleep(1)
    value = torch.ones(3)
    try:
        if MODE == "ddp":
            loss.backward()
        elif MODE == "functional":
            print(functional.all_reduce(value, "sum", dist.group.WORLD) + 1)
        elif MODE == "asynchronous":
            dist.all_reduce(value, async_op=True).wait()
        else:
            dist.all_reduce(value)
    except Exception as error:
        print(type(error).__name__, re.sub(r"[\d.]+\]?:\d+", "", str(error)), flush=True)


if __name__ == "__main__":
    main()
