# SPDX-License-Identifier: Apache-2.0
"""Silent bugs to train with: nothing crashes, the loss still falls, the model is wrong.

Each one is a small alteration of Megatron-Core that copies the mechanism of a bug which really
happened. Some replace a function before the model is built, others alter the built model;
`expected.json` says where a comparison with a healthy run must first see a difference.
"""

import argparse
import math
from typing import Callable, Iterator, NamedTuple


class Bug(NamedTuple):
    apply: Callable
    when: str  # "before" the model is built: apply(args), "after": apply(args, chunks)
    needs: str  # what the layout must have, else the bug has nothing to act on


def sp_layernorm_grad(args: argparse.Namespace, chunks: list) -> None:
    """One input layer norm lacks the `sequence_parallel` mark.

    Under sequence parallelism each rank normalises its own slice of the sequence, so the
    gradients of the replicated weights are partial sums. finalize_model_grads adds up those of
    *marked* parameters; a norm class that forgets the mark keeps its partial sum, and the copies
    drift apart. Seen with Megatron's RMSNorm and, for the last norm, with TransformerEngine.
    """
    for layer in _layers(chunks, args.bug_layer):
        for parameter in layer.input_layernorm.parameters():
            parameter.sequence_parallel = False


def embedding_mask(args: argparse.Namespace) -> None:
    """The mask of foreign tokens is off by one at the end of a rank's vocabulary range.

    Every rank looks up all tokens, zeroes those of other ranks, and the results are added up.
    `>` instead of `>=` takes the first token of the next rank for one's own, and the clamp that
    keeps the index legal turns it into this rank's last row: such a token gets the sum of two
    rows. Masks that disagree with the shifted ids are a recurring bug of parallel embeddings.
    """
    from torch.nn.functional import embedding

    from megatron.core.tensor_parallel import layers, mappings

    def forward(self, ids):
        foreign = (ids < self.vocab_start_index) | (ids > self.vocab_end_index)
        rows = (ids - self.vocab_start_index).clamp(0, self.num_embeddings_per_partition - 1)
        output = embedding(rows, self.weight)
        output[foreign, :] = 0.0
        if self.reduce_scatter_embeddings:
            output = output.transpose(0, 1).contiguous()
            return mappings.reduce_scatter_to_sequence_parallel_region(output, group=self.tp_group)
        return mappings.reduce_from_tensor_model_parallel_region(output, group=self.tp_group)

    layers.VocabParallelEmbedding.forward = forward


def pipeline_split(args: argparse.Namespace) -> None:
    """The second pipeline rank (its first chunk) starts one layer late: that layer is lost.

    Whoever divides layers among stages by hand, or rounds when the division has a remainder, can
    build fewer layers than the configuration says. Nothing checks the sum; a smaller model
    trains. Megatron has dropped layers this way with uneven stages and with virtual ones.
    """
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_block import TransformerBlock

    build_layers = TransformerBlock._build_layers

    def build_one_layer_late(self):
        build_layers(self)
        if parallel_state.get_pipeline_model_parallel_rank() == 1 and not self.vp_stage:
            self.layers = self.layers[1:]

    TransformerBlock._build_layers = build_one_layer_late


def grad_factor(args: argparse.Namespace, chunks: list) -> None:
    """Gradients are divided by the number of micro-batches twice.

    The schedule divides the loss of a micro-batch; a second division when gradients are
    finalised is invisible in every activation, and Adam and clipping hide it from the loss.
    Scaling once per bucket, or for the wrong group, has the same effect in Megatron's history.
    """
    config = chunks[0].config
    finalize_model_grads = config.finalize_model_grads_func

    def finalize_and_divide(model, *rest, **options):
        finalize_model_grads(model, *rest, **options)
        for chunk in model:
            chunk.scale_gradients(1.0 / args.micro_batches)

    config.finalize_model_grads_func = finalize_and_divide


def attention_scale(args: argparse.Namespace, chunks: list) -> None:
    """One layer takes its softmax scale from a padded head width.

    Attention kernels pad heads to a width they like; the scale must still come from the true
    one. Here a layer behaves as if its heads were one element wider: 3 % off for heads of 16.
    """
    for layer in _layers(chunks, args.bug_layer):
        attention = layer.self_attention.core_attention
        attention.softmax_scale = 1.0 / math.sqrt(attention.hidden_size_per_attention_head + 1)


BUGS = {
    "attention-scale": Bug(attention_scale, "after", needs="tensor parallelism"),
    "embedding-mask": Bug(embedding_mask, "before", needs="tensor parallelism"),
    "grad-factor": Bug(grad_factor, "after", needs="several micro-batches"),
    "pipeline-split": Bug(pipeline_split, "before", needs="pipeline parallelism"),
    "sp-layernorm-grad": Bug(sp_layernorm_grad, "after", needs="sequence parallelism"),
}


def problem(args: argparse.Namespace) -> str:
    """Says why the chosen bug would have no effect in this layout, or nothing."""
    if args.bug is None:
        return ""
    if not 0 <= args.bug_layer < args.layers:
        return f"--bug-layer {args.bug_layer} is not one of {args.layers} layers"
    present = {
        "tensor parallelism": args.tp > 1,
        "pipeline parallelism": args.pp > 1,
        "sequence parallelism": args.sp,
        "several micro-batches": args.micro_batches > 1,
    }
    needs = BUGS[args.bug].needs
    return "" if present[needs] else f"--bug {args.bug} has no effect without {needs}"


def apply_before(args: argparse.Namespace) -> None:
    bug = BUGS.get(args.bug)
    if bug and bug.when == "before":
        bug.apply(args)


def apply_after(args: argparse.Namespace, chunks: list) -> None:
    bug = BUGS.get(args.bug)
    if bug and bug.when == "after":
        bug.apply(args, chunks)


def _layers(chunks: list, global_layer: int) -> Iterator:
    """The layer with this global number, if this rank holds it."""
    from megatron.core.transformer.transformer_layer import TransformerLayer

    for chunk in chunks:
        for module in chunk.modules():
            if isinstance(module, TransformerLayer) and module.layer_number - 1 == global_layer:
                yield module
