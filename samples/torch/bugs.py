# SPDX-License-Identifier: Apache-2.0
"""Silent bugs for --bug: no error, no NaN, and the loss still falls.

Each is a mistake people make in this very kind of code, put in from outside so that the healthy
program reads as it should. `layers_to_build` acts while the model is built, `apply` once it has
been spread over the processes. torch is only imported by the bugs themselves: train.py asks
`complaint` before it pays for that import.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

# Name: (which layouts it needs, as a test on the arguments, what that test means in words).
NEEDS = {
    "sp-layernorm-grad": (lambda args: args.sp, "--sp"),
    "embedding-mask": (lambda args: args.tp > 1, "--tp above 1"),
    "grad-factor": (lambda args: args.dp > 1 and not args.fsdp1, "--dp above 1, without --fsdp1"),
    "layers-lost": (lambda args: args.layers > 1, "--layers above 1"),
    "unarmed-ddp": (lambda args: is_ddp(args), "--dp above 1, without --fsdp and --fsdp1"),
    "late-grad": (lambda args: is_ddp(args) and args.accumulate > 1,
                  "--dp above 1, without --fsdp and --fsdp1, and --accumulate above 1"),
}


def is_ddp(args: Any) -> bool:
    return args.dp > 1 and not args.fsdp and not args.fsdp1


def complaint(args: Any) -> Optional[str]:
    """Why the bug cannot show in this run; None if it can."""
    if args.bug is None:
        return None
    fits, words = NEEDS[args.bug]
    if not fits(args):
        return f"--bug {args.bug} needs {words}"
    if not 0 <= args.bug_layer < args.layers:
        return f"--bug-layer {args.bug_layer} is not one of the {args.layers} layers"
    return None


def layers_to_build(args: Any) -> list[int]:
    """layers-lost: the split of the layers forgets one, as a wrong pipeline stage border would."""
    numbers = list(range(args.layers))
    if args.bug == "layers-lost":
        numbers.remove(args.bug_layer)
    return numbers


def apply(args: Any, model: Any) -> None:
    if args.bug == "sp-layernorm-grad":
        layer = unwrapped(model).layers[str(args.bug_layer)]
        for norm in (layer.attention_norm, layer.ffn_norm):
            norm.forward = functools.partial(norm_on_local_tensors, norm)
    elif args.bug == "embedding-mask":
        mask_one_id_too_many()
    elif args.bug == "grad-factor":
        sum_instead_of_mean(model)
    elif args.bug == "unarmed-ddp":
        call_what_is_inside(model)
    elif args.bug == "late-grad":
        reduce_before_the_last_backward(args)


def unwrapped(model: Any) -> Any:
    return getattr(model, "module", model)


def norm_on_local_tensors(norm: Any, x: Any) -> Any:
    """sp-layernorm-grad: the norm of a sequence shard, computed by hand on local tensors.

    `weight.to_local()` declares the gradient to lie like the weight, replicated. It does not: each
    rank has seen its own part of the sequence, so the gradient is a partial sum that nobody adds
    up. Right would be `to_local(grad_placements=[Partial()])`.
    """
    from torch.distributed.tensor import DTensor
    from torch.nn import functional as F
    y = F.layer_norm(x.to_local(), norm.normalized_shape, norm.weight.to_local(), None, norm.eps)
    return DTensor.from_local(y, x.device_mesh, x.placements, run_check=False)


def mask_one_id_too_many() -> None:
    """embedding-mask: the last id of every vocabulary shard counts as another rank's.

    No rank looks it up, so its embedding is zero.
    """
    from torch.distributed.tensor import placement_types
    mask_of = placement_types._MaskPartial._mask_tensor

    def mask_tensor(ids: Any, first_id: int, shard_size: int):
        return mask_of(ids, first_id, shard_size - 1)

    placement_types._MaskPartial._mask_tensor = staticmethod(mask_tensor)


def sum_instead_of_mean(model: Any) -> None:
    """grad-factor: the gradients are summed over dp where the mean is meant: dp times too large."""
    if hasattr(model, "register_comm_hook"):
        model.register_comm_hook(None, sum_bucket)
        return
    for module in model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(1.0)
            # Gloo cannot scale inside a reduction, which is what a factor asks for otherwise.
            module.set_force_sum_reduction_for_comms(True)


def call_what_is_inside(model: Any) -> None:
    """unarmed-ddp: the inner model is called, DDP's own forward never runs.

    That is what tells its reducer that a backward pass is coming; without it no gradient is
    reduced, and every rank trains a model of its own (trl, issue 7245).
    """
    model.forward = lambda *inputs: model.module(*inputs)


def reduce_before_the_last_backward(args: Any) -> None:
    """late-grad: gradients are reduced one micro-batch early.

    What the last micro-batch adds stays local to each rank (DeepSpeed, pull 7985).
    """
    import parallel
    synchronise = parallel.gradient_sync
    calls = 0

    def one_early(model: Any, wanted: bool):
        nonlocal calls
        calls += 1
        return synchronise(model, calls % args.accumulate == args.accumulate - 1)

    parallel.gradient_sync = one_early


def sum_bucket(state, bucket):
    """No annotations: DDP rejects all but its own types, and naming those needs torch above."""
    import torch.distributed as dist
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
