# SPDX-License-Identifier: Apache-2.0
"""Bugs inside attention: a wrong scale, and backward passes that do not fit the forward pass.

The latter are invisible in every activation and in the loss of the first step: only gradients that
come out of attention are wrong, those that go in are right.
"""

import argparse
import math

from .common import Bug, layer


def attention_scale(args: argparse.Namespace, chunks: list) -> None:
    """One layer takes its softmax scale from a padded head width.

    Attention kernels pad heads to a width they like; the scale must still come from the true
    one. Here a layer behaves as if its heads were one element wider: 3 % off for heads of 16.
    """
    for module in layer(chunks, args.bug_layer):
        attention = module.self_attention.core_attention
        attention.softmax_scale = 1.0 / math.sqrt(attention.hidden_size_per_attention_head + 1)


def cp_attention_grad(args: argparse.Namespace) -> None:
    """The backward pass of ring attention normalises each block of keys by itself.

    The forward pass keeps one lse a block and merges them. If the backward pass takes a block's
    own instead of the merged one, probabilities add up to one in every block, and dQ, dK and dV
    are wrong although the output was exact. Wrong gradients of attention under context
    parallelism were reported for TransformerEngine's point-to-point ring (its issue 1557).
    """
    import torch

    import flash

    flash.recompute = lambda scores, lse: torch.softmax(scores, dim=-1).nan_to_num(0.0)


def attention_dq(args: argparse.Namespace) -> None:
    """The gradient of the queries keeps only the last block of keys.

    A kernel computes dK and dV of a block at once, but dQ is a sum over blocks: a store where an
    addition should be leaves the last. It needs no parallelism. Wrong dQ, and only dQ, was
    reported for TransformerEngine's fused attention (its issue 1615).
    """
    import flash

    flash.add_block = lambda total, part: part


def ring_stale_keys(args: argparse.Namespace) -> None:
    """The backward pass of ring attention uses a rank's own keys and values in every step.

    Gradients of keys and values travel around the ring, but the keys and values that they belong
    to are those that were saved first (diffusers, issue 14265).
    """
    import flash

    rotate = flash._rotate

    def rotate_gradients_only(tensor, group):
        moved = rotate(tensor, group)
        if tensor.shape[0] == 4:  # keys, values, and the gradients of both
            moved[:2] = tensor[:2]
        return moved

    flash._rotate = rotate_gradients_only


BUGS = {
    "ring-stale-keys": Bug(ring_stale_keys, "before", ("--flash", "context parallelism")),
    "attention-scale": Bug(attention_scale, "after", ("tensor parallelism",)),
    "cp-attention-grad": Bug(cp_attention_grad, "before", ("--flash", "context parallelism")),
    "attention-dq": Bug(attention_dq, "before", ("--flash",)),
}
