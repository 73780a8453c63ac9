# SPDX-License-Identifier: Apache-2.0
"""Bugs of the distributed optimizer (ZeRO): what a rank owns, updates and hands to the others.

Gradients live in flat buffers that are cut into buckets; of each bucket a data parallel rank gets
its share of the reduced gradient, updates it, and gathers the shares of the others.
"""

import argparse

from .common import Bug


def tied_embedding(args: argparse.Namespace) -> None:
    """The tied embedding has no bucket of its own.

    First and last stage hold it and add up their gradients *after* the reduce-scatter, rank by
    rank. That is right only if a rank owns the same rows on both stages, which a separate bucket
    ensures. In a common bucket it lies at the end on one stage and at the start on the other, so
    a reduced gradient is added to one that is not, and the copies drift apart (Megatron issue 656).
    """
    from megatron.core.distributed import distributed_data_parallel as ddp

    initialise = ddp._ParamAndGradBuffer.__init__

    def initialise_in_common_bucket(self, config, param_dtype, grad_dtype, params, *rest):
        tied = [parameter for parameter in params if getattr(parameter, "shared_embedding", False)]
        for parameter in tied:
            parameter.shared_embedding = False
        initialise(self, config, param_dtype, grad_dtype, params, *rest)
        for parameter in tied:
            parameter.shared_embedding = True

    ddp._ParamAndGradBuffer.__init__ = initialise_in_common_bucket


def tied_late(args: argparse.Namespace) -> None:
    """The tied embedding's gradients are added up after the optimizer has copied its own.

    The sum over first and last stage is made, but in tensors that nobody reads any more (Megatron
    commit 9b558566).
    """
    import importlib

    import torch

    # The package has a function of the same name.
    finalize = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    all_reduce = finalize._allreduce_word_embedding_grads

    def all_reduce_too_late(model, *rest, **options):
        tied = [parameter for chunk in model for parameter in chunk.parameters()
                if getattr(parameter, "shared_embedding", False)]
        copied = [parameter.main_grad.clone() for parameter in tied]
        all_reduce(model, *rest, **options)
        with torch.no_grad():
            for parameter, gradient in zip(tied, copied):
                parameter.main_grad.copy_(gradient)

    finalize._allreduce_word_embedding_grads = all_reduce_too_late


def zero_experts(args: argparse.Namespace, optimizer) -> None:
    """Experts are in no buffer that the optimizer knows.

    Their gradients are reduced among other ranks than those of all other parameters, so they have
    buffers of their own. An optimizer that is built from the first buffers only never updates
    them, and the rest of the model learns to live with it (Megatron issue 565).
    """
    optimizer.chained_optimizers = [
        part for part in optimizer.chained_optimizers
        if not any(group["is_expert_parallel"] for group in part.param_groups)
    ]


def zero_stale(args: argparse.Namespace, chunks: list) -> None:
    """The updated parameters of one bucket are not gathered.

    Each rank keeps last step's values of what the others own. Megatron has used stale parameters
    this way when buckets were gathered in another order than modules run (its issues 663, 950).
    """
    for chunk in chunks:
        chunk.bucket_groups[-1].start_param_sync = lambda force_sync=False: None


_ZERO = "--distributed-optimizer"

BUGS = {
    "tied-embedding": Bug(
        tied_embedding, "before",
        (_ZERO, "data parallelism", "pipeline parallelism", "tied embeddings"),
    ),
    "tied-late": Bug(tied_late, "before", ("pipeline parallelism", "tied embeddings")),
    "zero-experts": Bug(
        zero_experts, "optimizer", (_ZERO, "--experts", "expert parallelism")
    ),
    "zero-stale": Bug(zero_stale, "after", (_ZERO, "data parallelism", "--bucket-size")),
}
