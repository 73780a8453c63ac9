# SPDX-License-Identifier: Apache-2.0
"""Parameters that lack the `sequence_parallel` mark.

Under sequence parallelism each rank sees its own slice of the sequence, so the gradients of
replicated parameters are partial sums. finalize_model_grads adds up those of *marked* parameters;
a class that forgets the mark keeps its partial sum, and the copies drift apart.
"""

import argparse

from .common import Bug, layer


def _unmark(module) -> None:
    for parameter in module.parameters():
        parameter.sequence_parallel = False


def sp_layernorm_grad(args: argparse.Namespace, chunks: list) -> None:
    """The input layer norm of one layer. Seen with Megatron's RMSNorm."""
    for module in layer(chunks, args.bug_layer):
        _unmark(module.input_layernorm)


def final_norm_grad(args: argparse.Namespace, chunks: list) -> None:
    """The norm behind the last layer: the only one that was not fused into a linear layer.

    TransformerEngine's stand-alone norms had stopped setting the mark (Megatron issue 1446).
    """
    for chunk in chunks:
        for name, module in chunk.named_modules():
            if name.endswith("final_layernorm"):
                _unmark(module)


def router_grad(args: argparse.Namespace, chunks: list) -> None:
    """The routers of experts, which see a slice of the tokens, too (Megatron issue 599)."""
    for chunk in chunks:
        for name, module in chunk.named_modules():
            if name.endswith("mlp.router"):
                _unmark(module)


_SP = ("sequence parallelism",)

BUGS = {
    "sp-layernorm-grad": Bug(sp_layernorm_grad, "after", _SP),
    "final-norm-grad": Bug(final_norm_grad, "after", _SP),
    "router-grad": Bug(router_grad, "after", ("--experts", *_SP)),
}
