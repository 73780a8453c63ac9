# SPDX-License-Identifier: Apache-2.0
"""Layers that are not run: lost when stages are divided, or fed with another layer's input."""

import argparse
import copy

from .common import Bug


def pipeline_split(args: argparse.Namespace) -> None:
    """The second pipeline rank (its first chunk) starts one layer late: that layer is lost.

    Whoever divides layers among stages by hand can build fewer layers than the configuration
    says. Nothing checks the sum; a smaller model trains. Megatron has dropped layers this way
    with uneven stages and with virtual ones.
    """
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_block import TransformerBlock

    build_layers = TransformerBlock._build_layers

    def build_one_layer_late(self):
        build_layers(self)
        if parallel_state.get_pipeline_model_parallel_rank() == 1 and not self.vp_stage:
            self.layers = self.layers[1:]

    TransformerBlock._build_layers = build_one_layer_late


def pipeline_rounding(args: argparse.Namespace) -> None:
    """The number of layers a stage is rounded down, and the remainder built nowhere.

    Megatron's division had no check: 30 layers on 4 stages were 28 (its issue 1304).
    """
    from megatron.core.transformer import transformer_block

    divide = transformer_block.get_num_layers_to_build

    def divide_without_check(config, *rest, **options):
        config = copy.copy(config)
        config.num_layers -= config.num_layers % (args.pp * args.vpp)
        return divide(config, *rest, **options)

    transformer_block.get_num_layers_to_build = divide_without_check


def recompute_input(args: argparse.Namespace) -> None:
    """All layers of a recomputed chunk get the chunk's input, not the output of the one before.

    The function that a checkpoint runs loops over several layers and must pass the hidden states
    on; it passed its own argument to each, so only the last layer counts (Megatron pull 290). With
    one layer a chunk there is no difference.
    """
    from megatron.core import tensor_parallel
    from megatron.core.transformer.transformer_block import TransformerBlock

    def checkpointed_forward(self, hidden_states, attention_mask, context, context_mask,
                             rotary_pos_emb, attention_bias, *_, **__):
        def chunk(start):
            def run(hidden_states, *rest):
                names = ("attention_mask", "context", "context_mask", "rotary_pos_emb")
                for index in range(start, start + self.config.recompute_num_layers):
                    output, context = self._get_layer(index)(
                        hidden_states=hidden_states, attention_bias=attention_bias,
                        **dict(zip(names, rest)))
                return output, context

            return run

        step = self.config.recompute_num_layers
        for start in range(0, self.num_layers_per_pipeline_rank, step):
            hidden_states, context = tensor_parallel.checkpoint(
                chunk(start), self.config.distribute_saved_activations, hidden_states,
                attention_mask, context, context_mask, rotary_pos_emb)
        return hidden_states

    TransformerBlock._checkpointed_forward = checkpointed_forward


BUGS = {
    "pipeline-split": Bug(pipeline_split, "before", ("pipeline parallelism",)),
    "pipeline-rounding": Bug(
        pipeline_rounding, "before", ("pipeline parallelism", "a remainder of layers")
    ),
    "recompute-input": Bug(recompute_input, "before", ("--recompute of 2 or more layers",)),
}
