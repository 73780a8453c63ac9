# SPDX-License-Identifier: Apache-2.0
"""Context parallelism: each rank has a part of every sequence, attention sees all of it.

A causal token attends to those before it, so equal contiguous parts would be unequal work. As in
Megatron, the sequence is cut into 2n chunks and rank r holds chunks r and 2n-1-r ("zigzag").
Megatron-Core leaves attention across ranks to TransformerEngine; here keys and values are gathered.
"""

import copy

import torch
import torch.distributed as dist

from megatron.core import parallel_state as mpu
from megatron.core.transformer.dot_product_attention import DotProductAttention


def positions(length: int, rank: int, size: int) -> torch.Tensor:
    """Where the tokens of a rank stand in the sequence, in local order."""
    chunks = torch.arange(length).view(2 * size, -1)
    return torch.cat([chunks[rank], chunks[2 * size - 1 - rank]])


def own_part(batch: dict, length: int) -> dict:
    """Of a batch of whole sequences, what this rank needs; of the mask, the rows of its tokens."""
    size = mpu.get_context_parallel_world_size()
    if size == 1:
        return batch
    own = positions(length, mpu.get_context_parallel_rank(), size)
    return {
        name: tensor[:, :, own] if name == "attention_mask" else tensor[:, own].contiguous()
        for name, tensor in batch.items()
    }


class GatherSequence(torch.autograd.Function):
    """The whole sequence, in its own order; backward sums what all ranks ask of this part."""

    @staticmethod
    def forward(ctx, part: torch.Tensor, group) -> torch.Tensor:
        size = group.size()
        length = part.shape[0] * size
        ctx.group = group
        ctx.order = torch.cat([positions(length, rank, size) for rank in range(size)])
        gathered = part.new_empty(length, *part.shape[1:])
        dist.all_gather_into_tensor(gathered, part.contiguous(), group=group)
        whole = torch.empty_like(gathered)
        whole[ctx.order] = gathered
        return whole

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        by_rank = gradient[ctx.order].contiguous()
        part = by_rank.new_empty(by_rank.shape[0] // ctx.group.size(), *by_rank.shape[1:])
        dist.reduce_scatter_tensor(part, by_rank, group=ctx.group)
        return part, None


class GatheredAttention(DotProductAttention):
    """Megatron's plain attention of this rank's queries to the keys and values of all ranks."""

    def __init__(self, config, *args, **options):
        alone = copy.copy(config)
        alone.context_parallel_size = 1  # what it refuses is done around it
        super().__init__(alone, *args, **options)
        self.cp_group = mpu.get_context_parallel_group()

    def forward(self, query, key, value, *args, **options):
        if self.cp_group.size() > 1:
            key = GatherSequence.apply(key, self.cp_group)
            value = GatherSequence.apply(value, self.cp_group)
        return super().forward(query, key, value, *args, **options)
