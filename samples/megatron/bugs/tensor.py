# SPDX-License-Identifier: Apache-2.0
"""Bugs of layers that are split over tensor parallel ranks."""

import argparse
from typing import Callable

from .common import Bug


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


BUGS = {
    "embedding-mask": Bug(embedding_mask, "before", ("tensor parallelism",)),
    "embedding-shifted-mask": Bug(embedding_shifted_mask, "before", ("tensor parallelism",)),
    "overlap-chunk": Bug(overlap_chunk, "before", ("--overlap-ring",)),
}
