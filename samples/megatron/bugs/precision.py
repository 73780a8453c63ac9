# SPDX-License-Identifier: Apache-2.0
"""Bugs of low precision together with parallelism; fp8.py says what is right."""

import argparse

from .common import Bug, layers


def fp8_cast(args: argparse.Namespace) -> None:
    """The slice of the input is cast to FP8, the gathered input is not.

    Where the layer norm's output is gathered before it is cast, there are two tensors, and the
    multiplication gets the one that was not cast (TransformerEngine pull 738). Here that means
    full precision in its place, on the hardware bytes of another type.
    """
    import fp8

    def gathered_input(part, group):
        fp8.quantize(part, fp8.E4M3)
        return fp8.all_gather(part, group)

    fp8.gathered_input = gathered_input


def fp8_amax_group(args: argparse.Namespace) -> None:
    """The largest magnitude is reduced over data parallel ranks, not over those of one tensor.

    Scales then differ among tensor parallel ranks. For their own shards that is a matter of
    taste; but a slice of the sequence travels as codes and is decoded with the receiver's scale.
    A model of 40 billion parameters diverged after 1,000 steps (Megatron pull 442).
    """
    from megatron.core import parallel_state

    import fp8

    fp8.reduction_group = parallel_state.get_data_parallel_group


def fp8_norm_grad(args: argparse.Namespace, chunks: list) -> None:
    """The weight gradients of norms in front of linear layers are summed twice.

    With tensor and context parallelism and FP8 together, the backward pass returned gradients
    that were too large by the tensor parallel size, and the sum over ranks that follows knew
    nothing of it; each kind of parallelism alone was right (TransformerEngine issue 1677). Here
    the backward pass makes the sum, and finalize_model_grads makes it again.
    """
    import torch.distributed as dist

    from megatron.core import parallel_state

    def summed(gradient):
        total = gradient.clone()
        dist.all_reduce(total, group=parallel_state.get_tensor_model_parallel_group())
        return total

    for module in layers(chunks):
        for norm in (module.input_layernorm, module.pre_mlp_layernorm):
            norm.weight.register_hook(summed)


BUGS = {
    "fp8-cast": Bug(fp8_cast, "before", ("--fp8", "sequence parallelism")),
    "fp8-amax-group": Bug(fp8_amax_group, "before", ("--fp8", "tensor parallelism")),
    "fp8-norm-grad": Bug(
        fp8_norm_grad, "after", ("--fp8", "sequence parallelism", "context parallelism")
    ),
}
