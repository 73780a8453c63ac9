# SPDX-License-Identifier: Apache-2.0
"""Silent bugs to train with: nothing crashes, the loss still falls, the model is wrong.

Each one is a small alteration of Megatron-Core, or of what this sample adds to it, that copies the
mechanism of a bug which really happened. Some replace a function before the model is built, others
alter the built model or its optimizer; `expected.json` says where a comparison with a healthy run
must first see a difference.
"""

import argparse

from . import attention, clipping, graded, marks, memory, optimizer, pipeline, precision
from . import scaling, tensor

BUGS = {
    name: bug
    for module in (
        attention, clipping, graded, marks, memory, optimizer, pipeline, precision, scaling, tensor
    )
    for name, bug in module.BUGS.items()
}


def problem(args: argparse.Namespace) -> str:
    """Says why the chosen bug would have no effect in this run, or nothing."""
    if args.bug is None:
        return ""
    if not 0 <= args.bug_layer < args.layers:
        return f"--bug-layer {args.bug_layer} is not one of {args.layers} layers"
    present = {
        "tensor parallelism": args.tp > 1,
        "pipeline parallelism": args.pp > 1,
        "a remainder of layers": args.layers % (args.pp * args.vpp) > 0,
        "context parallelism": args.cp > 1,
        "data parallelism": args.dp > 1,
        "sequence parallelism": args.sp,
        "several micro-batches": args.micro_batches > 1,
        "--recompute of 2 or more layers": (args.recompute or 0) > 1,
        "--overlap-ring": args.overlap_ring,
        "--distributed-optimizer": args.distributed_optimizer,
        "--bucket-size": args.bucket_size is not None,
        "tied embeddings": not args.untie,
        "--experts": args.experts is not None,
        "expert parallelism": args.ep > 1,
        "input gradients reduced by --tp alone": not args.sp and not args.fp8,
        "--dp equal to --tp": args.dp == args.tp,
        "--rope": args.rope,
        "--per-token-loss": args.per_token_loss,
        "--flash": args.flash,
        "--fp8": args.fp8,
    }
    missing = [need for need in BUGS[args.bug].needs if not present[need]]
    return f"--bug {args.bug} has no effect without {missing[0]}" if missing else ""


def apply_before(args: argparse.Namespace) -> None:
    _apply("before", args)


def apply_after(args: argparse.Namespace, chunks: list) -> None:
    _apply("after", args, chunks)


def apply_to_optimizer(args: argparse.Namespace, built) -> None:
    _apply("optimizer", args, built)


def _apply(when: str, args: argparse.Namespace, *built) -> None:
    bug = BUGS.get(args.bug)
    if bug and bug.when == when:
        bug.apply(args, *built)
