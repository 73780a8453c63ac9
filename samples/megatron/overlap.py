# SPDX-License-Identifier: Apache-2.0
"""Row-parallel layers whose backward pass overlaps communication and multiplication.

Under sequence parallelism the gradient of a row-parallel output is split along the sequence, and
the backward pass needs all of it. Instead of gathering first, chunks travel around a ring: each is
multiplied for the input's gradient when it arrives and kept in a buffer, from which the weight's
gradient is computed at the end. TransformerEngine does the same in its userbuffers.
"""

import torch
import torch.distributed as dist

from megatron.core.tensor_parallel.layers import RowParallelLinear


def install(chunks: list) -> None:
    """In the row-parallel layers of a built model."""
    for chunk in chunks:
        for module in chunk.modules():
            if isinstance(module, RowParallelLinear) and not module.is_expert:
                module.forward = _forward_of(module)


def _forward_of(module: RowParallelLinear):
    def forward(input):
        output = RingRowLinear.apply(input, module.weight, module.tp_group)
        if module.skip_bias_add:
            return output, module.bias
        return (output if module.bias is None else output + module.bias), None

    return forward


def slot(step: int, rank: int, size: int) -> int:
    """The place in the buffer of the chunk that arrives in this step: its owner's."""
    return (rank - step) % size


class RingRowLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, group):
        ctx.save_for_backward(input, weight)
        ctx.group = group
        partial = input @ weight.t()
        output = partial.new_empty(partial.shape[0] // group.size(), *partial.shape[1:])
        dist.reduce_scatter_tensor(output, partial.contiguous(), group=group)
        return output

    @staticmethod
    def backward(ctx, gradient):
        input, weight = ctx.saved_tensors
        rank, size = ctx.group.rank(), ctx.group.size()
        ranks = dist.get_process_group_ranks(ctx.group)
        chunk = gradient.contiguous()
        dgrad = torch.empty_like(input)
        parts = dgrad.chunk(size)
        buffer = chunk.new_empty(size, *chunk.shape)
        for step in range(size):
            parts[(rank - step) % size].copy_(chunk @ weight)
            buffer[slot(step, rank, size)] = chunk
            if step + 1 < size:
                received = torch.empty_like(chunk)
                send = dist.isend(chunk, ranks[(rank + 1) % size], group=ctx.group)
                dist.recv(received, ranks[(rank - 1) % size], group=ctx.group)
                send.wait()
                chunk = received
        wgrad = buffer.flatten(0, -2).t() @ input.flatten(0, -2)
        return dgrad, wgrad, None
