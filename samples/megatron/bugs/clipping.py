# SPDX-License-Identifier: Apache-2.0
"""Wrong norms of all gradients, hence wrong factors of clipping.

Every gradient is right; the norm must count each element once, whatever the layout.
"""

import argparse

from .common import Bug


def _count(counts) -> None:
    from megatron.core import tensor_parallel

    tensor_parallel.param_is_not_tensor_parallel_duplicate = counts


def norm_shards(args: argparse.Namespace) -> None:
    """Only the first tensor parallel rank's gradients are counted, shards of others are not.

    Right for copies, wrong for parameters that are split (DeepSpeed, pull 5411).
    """
    from megatron.core import parallel_state

    _count(lambda parameter, group=None: parallel_state.get_tensor_model_parallel_rank() == 0)


def norm_copies(args: argparse.Namespace) -> None:
    """Copies are counted on every tensor parallel rank.

    They carry the mark of parameters that are split (ROCm's TransformerEngine, pull 715).
    """
    _count(lambda parameter, group=None: True)


def norm_local(args: argparse.Namespace, optimizer) -> None:
    """The norm is that of a rank's own gradients, not summed over model parallel ranks.

    So copies are clipped by different factors, and drift apart (Automodel, issue 3816).
    """
    from megatron.core import parallel_state

    for part in optimizer.chained_optimizers:
        part.get_grad_stats_parallel_group = parallel_state.get_data_parallel_group


BUGS = {
    "norm-shards": Bug(norm_shards, "before", ("tensor parallelism",)),
    "norm-copies": Bug(norm_copies, "before", ("tensor parallelism",)),
    "norm-local": Bug(norm_local, "optimizer", ("tensor parallelism",)),
}
