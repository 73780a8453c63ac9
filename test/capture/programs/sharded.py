# SPDX-License-Identifier: Apache-2.0
"""One small model, of which each rank keeps pieces: sharded.py MODE.

single; fsdp1 (FullyShardedDataParallel); joined (without use_orig_params); hybrid (two groups of
ranks with copies of each other); whole (NO_SHARD); zero (ZeroRedundancyOptimizer); deepspeed1,
deepspeed2 (its ZeRO stages). No extent divides by the number of ranks. All ranks together see
the data of "single", and gradients are means over them.
"""
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

MODE = sys.argv[1]
CLIP = 0.05
warnings.filterwarnings("ignore")


def place():
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.body = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 5))
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 7, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(self.norm(x + self.body(x)))


def fsdp1(model):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    rank, ranks = place()
    how = {"use_orig_params": MODE != "joined", "device_id": torch.device("cpu")}
    if MODE == "whole":
        how["sharding_strategy"] = ShardingStrategy.NO_SHARD
    if MODE == "hybrid":
        near = [dist.new_group([2 * i, 2 * i + 1]) for i in range(ranks // 2)]
        far = [dist.new_group(list(range(i, ranks, 2))) for i in range(2)]
        how.update(process_group=(near[rank // 2], far[rank % 2]),
                   sharding_strategy=ShardingStrategy.HYBRID_SHARD)
    model.body = FullyShardedDataParallel(model.body, **how)
    return FullyShardedDataParallel(model, **how)


def build():
    """(model, optimizer, a function that makes gradients, one that clips and steps)"""
    model = Model()
    if MODE.startswith("deepspeed"):
        import deepspeed
        config = {"train_micro_batch_size_per_gpu": 12 // place()[1], "gradient_clipping": CLIP,
                  "zero_optimization": {"stage": int(MODE[-1])},
                  "zero_allow_untested_optimizer": True}
        model, optimizer, _, _ = deepspeed.initialize(
            model=model, config=config, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
        return model, optimizer, model.backward, model.step
    if MODE in ("fsdp1", "joined", "hybrid", "whole"):
        model = fsdp1(model)
    if MODE == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        model = nn.parallel.DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step():
        if hasattr(model, "clip_grad_norm_"):
            model.clip_grad_norm_(CLIP)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, torch.Tensor.backward, step


def main():
    rank, ranks = place()
    if ranks > 1 or MODE.startswith("deepspeed"):
        dist.init_process_group("gloo")
    torch.manual_seed(ranks)  # no two layouts start alike by chance
    model, _, backward, step = build()
    data = torch.Generator().manual_seed(5)
    for _ in range(2):
        tokens = torch.randint(7, (12, 3), generator=data).chunk(ranks)[rank]
        backward((model(tokens) * torch.arange(7.0)).square().mean())
        step()
    if dist.is_initialized():
        time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
