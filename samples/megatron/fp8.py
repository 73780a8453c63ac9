# SPDX-License-Identifier: Apache-2.0
"""Linear layers that multiply FP8 values, emulated: quantised to FP8 codes and back.

As TransformerEngine does: activations and weights as e4m3, gradients as e5m2, one scale a tensor,
which maps the largest magnitude (amax) to the largest code. The amax is that of the whole logical
tensor, so it is reduced over the ranks that share it. Under sequence parallelism *codes* travel
and the receiver decodes them with its own scale: all ranks must have the same. The output layer
stays in full precision.
"""

import torch
import torch.distributed as dist

from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def install(chunks: list) -> None:
    """In the linear layers of a built model."""
    for chunk in chunks:
        for name, module in chunk.named_modules():
            if not isinstance(module, (ColumnParallelLinear, RowParallelLinear)):
                continue
            if not name.endswith("output_layer"):
                module._forward_impl = _linear


def _linear(input, weight, bias=None, allreduce_dgrad=False, sequence_parallel=False,
            tp_group=None, **_):
    """In place of Megatron's linear_with_grad_accumulation_and_async_allreduce."""
    output = Fp8Linear.apply(input, weight, allreduce_dgrad, sequence_parallel, tp_group)
    return output if bias is None else output + bias


def reduction_group():
    """The ranks that have parts of one tensor."""
    return mpu.get_amax_reduction_group(with_context_parallel=True, tp_only_amax_red=True)


def quantize(tensor: torch.Tensor, dtype: torch.dtype):
    """(codes, what to multiply them with)."""
    largest = torch.finfo(dtype).max
    amax = tensor.detach().abs().amax().float()
    dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=reduction_group())
    scale = torch.where(amax > 0, largest / amax, torch.ones_like(amax))
    codes = (tensor.float() * scale).clamp(-largest, largest).to(dtype)
    return codes, 1.0 / scale


def dequantize(codes: torch.Tensor, inverse: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (codes.float() * inverse).to(dtype)


def rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return dequantize(*quantize(tensor, dtype), tensor.dtype)


def all_gather(part: torch.Tensor, group) -> torch.Tensor:
    whole = part.new_empty(part.shape[0] * group.size(), *part.shape[1:])
    dist.all_gather_into_tensor(whole, part.contiguous(), group=group)
    return whole


def gathered_input(part: torch.Tensor, group) -> torch.Tensor:
    """What the multiplication reads, of an input split along the sequence."""
    codes, inverse = quantize(part, E4M3)
    total = all_gather(codes.view(torch.uint8), group).view(E4M3)
    return dequantize(total, inverse, part.dtype)


class Fp8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, allreduce_dgrad, sequence_parallel, group):
        ctx.allreduce_dgrad, ctx.sequence_parallel = allreduce_dgrad, sequence_parallel
        ctx.group = group
        total = gathered_input(input, group) if sequence_parallel else rounded(input, E4M3)
        weight = rounded(weight, E4M3)
        ctx.save_for_backward(total, weight)
        return total @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        total, weight = ctx.saved_tensors
        gradient = rounded(gradient, E5M2)
        dgrad = gradient @ weight
        wgrad = gradient.flatten(0, -2).t() @ total.flatten(0, -2)
        if ctx.sequence_parallel:
            part = dgrad.new_empty(dgrad.shape[0] // ctx.group.size(), *dgrad.shape[1:])
            dist.reduce_scatter_tensor(part, dgrad.contiguous(), group=ctx.group)
            dgrad = part
        elif ctx.allreduce_dgrad:
            dist.all_reduce(dgrad, group=ctx.group)
        return dgrad, wgrad, None, None, None
