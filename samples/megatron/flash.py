# SPDX-License-Identifier: Apache-2.0
"""Attention in blocks of keys with a backward pass of its own, on a ring of ranks if need be.

No matrix of all scores exists. The forward pass merges the blocks' results by the logarithms of
their sums of exponentials (lse); the backward pass computes each block's probabilities anew from
the merged lse and adds up the gradients. With context parallelism keys and values travel from rank
to rank, and in the backward pass their gradients travel with them until they are home again.
"""

import math

import torch
import torch.distributed as dist

from megatron.core import parallel_state as mpu
from megatron.core.transformer.module import MegatronModule

import context


class FlashAttention(MegatronModule):
    """Stands where Megatron's DotProductAttention does; causal, without dropout."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type,
                 softmax_scale=None, **_):
        super().__init__(config=config)
        self.hidden_size_per_attention_head = config.kv_channels
        self.softmax_scale = softmax_scale or 1.0 / math.sqrt(config.kv_channels)
        self.cp_group = mpu.get_context_parallel_group()

    def forward(self, query, key, value, attention_mask, **_):
        repeats = query.shape[2] // key.shape[2]
        if repeats > 1:
            key = key.repeat_interleave(repeats, dim=2)
            value = value.repeat_interleave(repeats, dim=2)
        output = BlockAttention.apply(query, key, value, self.softmax_scale, self.cp_group)
        return output.flatten(2)


class BlockAttention(torch.autograd.Function):
    """Of [sequence, batch, heads, width]; inside, [batch, heads, sequence, width] in float32."""

    @staticmethod
    def forward(ctx, query, key, value, scale, group):
        q, k, v = (tensor.float().permute(1, 2, 0, 3) for tensor in (query, key, value))
        travelling = torch.stack([k, v])
        output = lse = None
        for source, rows in _blocks(q, group):
            if rows is None:
                travelling = _rotate(travelling, group)
                continue
            part, part_lse = attend(q, *travelling[:, :, :, rows], _hidden(q, rows, source, group),
                                    scale)
            output, lse = (part, part_lse) if lse is None else merge(output, lse, part, part_lse)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.scale, ctx.group, ctx.dtype = scale, group, query.dtype
        return _as_given(output, query.dtype)

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, output, lse = ctx.saved_tensors
        gradient = gradient.float().permute(1, 2, 0, 3)
        delta = (gradient * output).sum(dim=-1, keepdim=True)
        dq = torch.zeros_like(q)
        travelling = torch.stack([k, v, torch.zeros_like(k), torch.zeros_like(v)])
        for source, rows in _blocks(q, ctx.group):
            if rows is None:
                travelling = _rotate(travelling, ctx.group)
                continue
            key, value = travelling[:2, :, :, rows]
            scores = masked_scores(q, key, _hidden(q, rows, source, ctx.group), ctx.scale)
            probabilities = recompute(scores, lse)
            slope = probabilities * (gradient @ value.transpose(2, 3) - delta) * ctx.scale
            dq = add_block(dq, slope @ key)
            travelling[2, :, :, rows] += slope.transpose(2, 3) @ q
            travelling[3, :, :, rows] += probabilities.transpose(2, 3) @ gradient
        _, _, dk, dv = _rotate(travelling, ctx.group)
        return (*(_as_given(tensor, ctx.dtype) for tensor in (dq, dk, dv)), None, None)


def _as_given(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.permute(2, 0, 1, 3).to(dtype).contiguous()


def _blocks(q: torch.Tensor, group):
    """(whose keys, which of its rows) for each block; rows are None where the keys move on."""
    size, half = group.size(), q.shape[2] // 2
    for step in range(size):
        if step:
            yield None, None
        source = (group.rank() - step) % size
        yield source, slice(0, half)
        yield source, slice(half, 2 * half)


def _hidden(q: torch.Tensor, rows: slice, source: int, group) -> torch.Tensor:
    """True where a query stands before a key."""
    size, length = group.size(), q.shape[2] * group.size()
    own = context.positions(length, group.rank(), size)
    return own[:, None] < context.positions(length, source, size)[rows]


def masked_scores(q, k, hidden, scale: float) -> torch.Tensor:
    return (q @ k.transpose(2, 3) * scale).masked_fill(hidden, -math.inf)


def attend(q, k, v, hidden, scale: float):
    """A block's output, normalised in itself, and its lse; -inf for a query that sees no key."""
    scores = masked_scores(q, k, hidden, scale)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    probabilities = torch.exp(scores - lse).nan_to_num(0.0)
    return probabilities @ v, lse


def merge(output, lse, part, part_lse):
    total = torch.logaddexp(lse, part_lse)
    return output * torch.exp(lse - total) + part * torch.exp(part_lse - total), total


def recompute(scores: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The probabilities of a block among *all* keys."""
    return torch.exp(scores - lse)


def add_block(total: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    return total + part


def _rotate(tensor: torch.Tensor, group) -> torch.Tensor:
    """To the next rank of the ring, from the one before."""
    if group.size() == 1:
        return tensor
    ranks = dist.get_process_group_ranks(group)
    received = torch.empty_like(tensor)
    send = dist.isend(tensor.contiguous(), ranks[(group.rank() + 1) % group.size()], group=group)
    dist.recv(received, ranks[(group.rank() - 1) % group.size()], group=group)
    send.wait()
    return received
