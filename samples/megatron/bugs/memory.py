# SPDX-License-Identifier: Apache-2.0
"""Memory that is written while somebody still needs what was in it."""

import argparse

from .common import Bug, layer


def buffer_reuse(args: argparse.Namespace, chunks: list) -> None:
    """A kernel writes into the input of one layer, which the backward pass still needs.

    Autograd counts the versions of a tensor and would complain, but a kernel that writes to bare
    memory passes it by (Liger-Kernel, issue 272). Here the normalised hidden states are
    overwritten once fc1 has multiplied them, so that only its weight's gradient is wrong.
    """
    def overwrite(module, args, output):
        args[0].data.copy_(args[0].data.roll(1, dims=0))

    for module in layer(chunks, args.bug_layer):
        module.mlp.linear_fc1.register_forward_hook(overwrite)


BUGS = {
    "buffer-reuse": Bug(buffer_reuse, "after", ()),
}
