# SPDX-License-Identifier: Apache-2.0
"""Bugs of layers that are split over tensor parallel ranks."""

import argparse
from typing import Callable

from .common import Bug, layer


def _replace_lookup(prepare: Callable) -> None:
    """The parallel lookup with rows and foreign tokens as prepare(embedding, ids) finds them.

    Every rank looks up all tokens, zeroes those of other ranks, and the results are added up.
    """
    from torch.nn.functional import embedding

    from megatron.core.tensor_parallel import layers, mappings

    def forward(self, ids):
        rows, foreign = prepare(self, ids)
        output = embedding(rows, self.weight)
        output[foreign, :] = 0.0
        if self.reduce_scatter_embeddings:
            output = output.transpose(0, 1).contiguous()
            return mappings.reduce_scatter_to_sequence_parallel_region(output, group=self.tp_group)
        return mappings.reduce_from_tensor_model_parallel_region(output, group=self.tp_group)

    layers.VocabParallelEmbedding.forward = forward


def embedding_mask(args: argparse.Namespace) -> None:
    """The mask of foreign tokens is off by one at the end of a rank's vocabulary range.

    `>` instead of `>=` takes the first token of the next rank for one's own, and the clamp that
    keeps the index legal turns it into this rank's last row: such a token gets the sum of two
    rows. Masks that disagree with the shifted ids are a recurring bug of parallel embeddings.
    """

    def prepare(self, ids):
        foreign = (ids < self.vocab_start_index) | (ids > self.vocab_end_index)
        rows = (ids - self.vocab_start_index).clamp(0, self.num_embeddings_per_partition - 1)
        return rows, foreign

    _replace_lookup(prepare)


def embedding_shifted_mask(args: argparse.Namespace) -> None:
    """The mask is computed anew after the lookup, from ids that were shifted for it.

    Foreign ids have become 0 by then and own ones start at 0: the first rank, whose range starts
    there, zeroes nothing, and the others zero (nearly) everything (slapo, pull 80).
    """

    def prepare(self, ids):
        start, end = self.vocab_start_index, self.vocab_end_index
        rows = ids.clone() - start
        rows[(ids < start) | (ids >= end)] = 0
        return rows, (rows < start) | (rows >= end)

    _replace_lookup(prepare)


def overlap_chunk(args: argparse.Namespace) -> None:
    """Chunks of the gradient are kept in the order in which they arrive.

    On the ring a rank's own chunk is the first, whatever its place in the sequence is. The
    gradient of the input is computed chunk by chunk and right; that of the weight pairs, on all
    ranks but the first, chunks of gradient and input of different tokens. Weight gradients were
    wrong with TransformerEngine's overlap of communication (its issue 1616).
    """
    import overlap

    overlap.slot = lambda step, rank, size: step


def dgrad_copy(args: argparse.Namespace, chunks: list) -> None:
    """One layer reduces a copy of its input's gradient and returns the original.

    A collective wants contiguous memory; for a gradient that is not, `contiguous()` makes another
    tensor, and the sum lands in that (Megatron, pull 5338). Each rank keeps its own addend.
    """
    import torch
    import torch.distributed as dist

    class ReduceCopy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, group):
            ctx.group = group
            return tensor.view_as(tensor)

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(gradient.clone(), group=ctx.group)
            return gradient, None

    for module in layer(chunks, args.bug_layer):
        linear = module.self_attention.linear_qkv
        multiply = linear._forward_impl

        def forward(input, *rest, allreduce_dgrad, multiply=multiply, group=linear.tp_group,
                    **options):
            return multiply(ReduceCopy.apply(input, group), *rest, allreduce_dgrad=False, **options)

        linear._forward_impl = forward


def gathered_logits(args: argparse.Namespace, chunks: list) -> None:
    """Whole logits go into a loss that takes them for a rank's part of the vocabulary.

    The sum of exponentials counts all of them once a rank, and all but the first rank look for
    their targets beyond the end: the loss is too large by log(tp), a constant that no curve shows
    (Megatron issue 7452).
    """
    for chunk in chunks:
        for name, module in chunk.named_modules():
            if name.endswith("output_layer"):
                module.gather_output = True


def gather_group(args: argparse.Namespace, chunks: list) -> None:
    """One layer gathers its input from the data parallel group.

    A helper that is given a group and uses another one: shapes fit where both have as many ranks,
    but half of the tokens are those of another sample (Megatron issue 7452).
    """
    from megatron.core import parallel_state

    for module in layer(chunks, args.bug_layer):
        module.mlp.linear_fc1.tp_group = parallel_state.get_data_parallel_group()


def rope_local(args: argparse.Namespace) -> None:
    """Rotary positions are counted within a rank's part of the sequence.

    Queries and keys are those of the whole sequence, gathered by the layer before; a table for
    the part of one rank makes every part start at 0 (Megatron commit bbfbd6c1).
    """
    from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding

    whole = RotaryEmbedding.forward

    def forward(self, length, *rest, **options):
        return whole(self, length // args.tp, *rest, **options).repeat(args.tp, 1, 1, 1)

    RotaryEmbedding.forward = forward


BUGS = {
    "dgrad-copy": Bug(
        dgrad_copy, "after", ("tensor parallelism", "input gradients reduced by --tp alone")
    ),
    "gathered-logits": Bug(gathered_logits, "after", ("tensor parallelism",)),
    "gather-group": Bug(gather_group, "after", ("sequence parallelism", "--dp equal to --tp")),
    "rope-local": Bug(rope_local, "before", ("--rope", "sequence parallelism")),
    "embedding-mask": Bug(embedding_mask, "before", ("tensor parallelism",)),
    "embedding-shifted-mask": Bug(embedding_shifted_mask, "before", ("tensor parallelism",)),
    "overlap-chunk": Bug(overlap_chunk, "before", ("--overlap-ring",)),
}
