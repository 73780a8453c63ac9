# SPDX-License-Identifier: Apache-2.0
"""Gradients that are right but for a constant factor.

The schedule divides the loss by the tokens and micro-batches of a rank, and before gradients are
summed over all ranks with other data, buckets are scaled by one over their number. Each half alone
looks right. Adam and clipping hide the factor from the loss.
"""

import argparse

from .common import Bug


def _scale_buckets(chunks: list, factor: float) -> None:
    for chunk in chunks:
        for group in chunk.bucket_groups:
            for bucket in group.buckets:
                bucket.gradient_scaling_factor = factor


def grad_factor(args: argparse.Namespace, chunks: list) -> None:
    """Gradients are divided by the number of micro-batches twice.

    The schedule divides the loss of a micro-batch; a second division when gradients are
    finalised is invisible in every activation. Scaling once per bucket, or for the wrong group,
    has the same effect in Megatron's history.
    """
    config = chunks[0].config
    finalize_model_grads = config.finalize_model_grads_func

    def finalize_and_divide(model, *rest, **options):
        finalize_model_grads(model, *rest, **options)
        for chunk in model:
            chunk.scale_gradients(1.0 / args.micro_batches)

    config.finalize_model_grads_func = finalize_and_divide


def cp_loss_scale(args: argparse.Namespace, chunks: list) -> None:
    """Buckets are scaled by one over the data parallel size, without context parallelism.

    The sum goes over both, and a rank's loss is divided by its own tokens only, so gradients
    are too large by the context parallel size (Megatron issues 673 and 906).
    """
    _scale_buckets(chunks, 1.0 / args.dp)


def dp_loss_scale(args: argparse.Namespace, chunks: list) -> None:
    """Buckets are not scaled, as if losses were sums that are divided at the end.

    That is right with `calculate_per_token_loss` only; here each rank's loss is a mean already,
    so gradients are summed over data parallel ranks where they should be averaged.
    """
    _scale_buckets(chunks, 1.0)


def mean_of_means(args: argparse.Namespace) -> None:
    """Each micro-batch's loss is a mean over its own tokens, and these are averaged.

    Short micro-batches, or with context parallelism the ranks with few tokens that count, weigh
    too much; where all have the same number there is no difference. Found in many trainers that
    accumulate gradients (transformers, pull 34191) and in losses under context parallelism
    (Megatron, pull 7513).
    """
    import torch

    import loss

    loss.counted = lambda total, tokens: (total / tokens.clamp(min=1), torch.ones_like(tokens))


def local_tokens(args: argparse.Namespace, chunks: list) -> None:
    """Gradients are divided by the tokens of this rank instead of those of all.

    The number of tokens must be summed over the ranks as the gradients are. Each data parallel
    rank then scales the same sums by its own number, and the copies drift apart.
    """
    config = chunks[0].config
    finalize_model_grads = config.finalize_model_grads_func

    def finalize_and_divide(model, num_tokens=None, **options):
        finalize_model_grads(model, None, **options)
        for chunk in model:
            chunk.scale_gradients(1.0 / num_tokens)

    config.finalize_model_grads_func = finalize_and_divide


BUGS = {
    "mean-of-means": Bug(mean_of_means, "before", ("--per-token-loss",)),
    "local-tokens": Bug(local_tokens, "after", ("--per-token-loss", "data parallelism")),
    "grad-factor": Bug(grad_factor, "after", ("several micro-batches",)),
    "cp-loss-scale": Bug(cp_loss_scale, "after", ("context parallelism",)),
    "dp-loss-scale": Bug(dp_loss_scale, "after", ("data parallelism",)),
}
