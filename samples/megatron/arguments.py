# SPDX-License-Identifier: Apache-2.0
"""Command line of the sample: which layouts, models and training runs there are.

Layout flags change how a run is divided among ranks and nothing else; a reference on one rank
needs the flags of the model and of the training only.
"""

import argparse
import os

import bugs


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Pretrains a small GPT with Megatron-Core on CPU: any layout, same samples."
    )
    _add_layout(parser.add_argument_group("layout"))
    _add_model(parser.add_argument_group("model"))
    _add_training(parser.add_argument_group("training"))
    args = parser.parse_args()
    problem = _fill_in(args) or _check_layout(args) or _check_batches(args) or bugs.problem(args)
    if problem:
        parser.error(problem)
    return args


def _add_layout(group) -> None:
    group.add_argument("--tp", type=int, default=1, help="tensor parallel size")
    group.add_argument("--pp", type=int, default=1, help="pipeline parallel size")
    group.add_argument("--vpp", type=int, default=1, help="model chunks per pipeline rank")
    group.add_argument("--cp", type=int, default=1, help="context parallel size")
    group.add_argument("--dp", type=int, help="data parallel size; default: what is left")
    group.add_argument("--ep", type=int, default=1, help="expert parallel size, of tp x dp")
    group.add_argument("--etp", type=int, default=1, help="tensor parallel size of experts")
    group.add_argument("--dispatcher", choices=("allgather", "alltoall"), default="allgather",
                       help="how tokens travel to experts")
    group.add_argument("--sp", action="store_true", help="sequence parallelism")
    group.add_argument("--overlap-ring", action="store_true",
                       help="with --sp: gradients of row-parallel outputs travel chunk by chunk")
    group.add_argument("--distributed-optimizer", action="store_true")
    group.add_argument("--bucket-size", type=int,
                       help="overlap gradient reduction with the backward pass, in such buckets")
    group.add_argument("--recompute", type=int, nargs="?", const=1, metavar="N",
                       help="full and uniform, in chunks of N layers (1)")


def _add_model(group) -> None:
    group.add_argument("--layers", type=int, default=4)
    group.add_argument("--hidden", type=int, default=64)
    group.add_argument("--heads", type=int, default=4)
    group.add_argument("--kv-heads", type=int, help="fewer than heads: grouped-query attention")
    group.add_argument("--ffn-hidden", type=int, help="default: 4 x hidden")
    group.add_argument("--seq", type=int, default=32)
    group.add_argument("--vocab", type=int, default=128)
    group.add_argument("--pad-vocab", type=int, metavar="N",
                       help="pad the vocabulary to a multiple of N x tp (default: not at all)")
    group.add_argument("--mtp", type=int, metavar="N", help="predict N tokens more than the next")
    group.add_argument("--swiglu", action="store_true")
    group.add_argument("--rope", action="store_true", help="default: learned positions")
    group.add_argument("--rmsnorm", action="store_true")
    group.add_argument("--untie", action="store_true", help="output layer has its own weight")
    group.add_argument("--experts", type=int, help="mixture of experts, top 2")
    group.add_argument("--flash", action="store_true", help="attention in blocks of keys")
    group.add_argument("--fp8", action="store_true", help="linear layers multiply FP8 values")


def _add_training(group) -> None:
    group.add_argument("--micro-batch-size", type=int, default=1)
    group.add_argument("--per-token-loss", action="store_true",
                       help="samples of unequal length, all tokens count the same")
    group.add_argument("--global-batch-size", type=int, default=4)
    group.add_argument("--iters", type=int, default=2)
    group.add_argument("--lr", type=float, default=1e-3)
    group.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    group.add_argument("--clip-grad", type=float, default=1.0)
    precision = group.add_mutually_exclusive_group()
    precision.add_argument("--bf16", action="store_true")
    precision.add_argument("--amp", action="store_true",
                           help="weights in fp32, matrix products in bf16 (autocast)")
    precision.add_argument("--fp64", action="store_true", help="on one rank: everything in fp64")
    group.add_argument("--seed", type=int, default=1234)
    group.add_argument("--bug", choices=sorted(bugs.BUGS), help="break one thing silently")
    group.add_argument("--bug-size", type=int, default=6, metavar="K",
                       help="of fc2-factor: 1 + 2^-K")
    group.add_argument("--bug-layer", type=int, default=1, help="global layer, from 0")


def _fill_in(args: argparse.Namespace) -> str:
    """Sizes left to their defaults; returns what is wrong, or nothing."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    args.dp = args.dp or max(1, world // (args.tp * args.pp * args.cp))
    args.kv_heads = args.kv_heads or args.heads
    multiple = (args.pad_vocab or 1) * (args.tp if args.pad_vocab else 1)
    args.padded_vocab = -(-args.vocab // multiple) * multiple
    ranks = args.tp * args.pp * args.cp * args.dp
    if world != ranks:
        sizes = f"tp {args.tp} x pp {args.pp} x cp {args.cp} x dp {args.dp}"
        return f"{sizes} = {ranks} ranks, but {world} are running"
    return ""


def _check_layout(args: argparse.Namespace) -> str:
    stages = args.pp * args.vpp
    if args.padded_vocab % args.tp:
        return f"--vocab {args.vocab} is not divisible by --tp {args.tp} (see --pad-vocab)"
    if args.layers % stages and args.bug != "pipeline-rounding":
        return f"--layers {args.layers} is not divisible by --pp {args.pp} x --vpp {args.vpp}"
    if args.vpp > 1 and args.pp == 1:
        return "--vpp needs --pp of at least 2"
    if args.sp and args.tp == 1:
        return "--sp needs --tp of at least 2"
    if args.overlap_ring and (not args.sp or args.fp8):
        return "--overlap-ring needs --sp and excludes --fp8"
    if args.cp > 1 and args.seq % (2 * args.cp):
        return f"--seq {args.seq} is not divisible by 2 x --cp {args.cp}"
    if args.mtp and args.pp > 1 and not args.untie:
        # Megatron then gives the last stage two weights of the output layer and trains one.
        return "--mtp with --pp needs --untie"
    if args.experts and args.tp > 1 and args.ep == 1 and args.etp == 1:
        # Megatron then leaves each tensor parallel rank's expert gradients unreduced.
        return "--experts with --tp needs --ep or --etp of at least 2"
    if args.experts and (args.cp > 1 or args.fp8):
        return "--experts with --cp or --fp8 is not supported"
    if args.amp and (args.sp or args.recompute or args.flash or args.fp8):
        # Under autocast Megatron scatters bfloat16 into a float32 buffer with --sp, and recomputes
        # in float32; the backward passes of flash.py and fp8.py know nothing of it.
        return "--amp with --sp, --recompute, --flash or --fp8 is not supported"
    if args.recompute and args.layers // stages % args.recompute:
        return f"--recompute {args.recompute} does not divide the layers of a stage"
    if args.distributed_optimizer and args.optimizer != "adam":
        return "Megatron's distributed optimizer needs --optimizer adam"
    return ""


def _check_batches(args: argparse.Namespace) -> str:
    if args.global_batch_size % (args.micro_batch_size * args.dp):
        return (
            f"--global-batch-size {args.global_batch_size} is not divisible by "
            f"--micro-batch-size {args.micro_batch_size} x dp {args.dp}"
        )
    args.micro_batches = args.global_batch_size // (args.micro_batch_size * args.dp)
    if args.vpp > 1 and args.micro_batches % args.pp:
        return f"{args.micro_batches} micro-batches do not fill --pp {args.pp} with --vpp"
    return ""
