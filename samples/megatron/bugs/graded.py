# SPDX-License-Identifier: Apache-2.0
"""A bug of any size: one output of one layer is off by a factor 1 + 2^-k (`--bug-size k`).

Real bugs are seldom so plain; this one measures how small an error can be and still be seen.
"""

from .common import Bug, layer


def _scale_output(args, chunks: list) -> None:
    factor = 1 + 2.0 ** -args.bug_size

    for found in layer(chunks, args.bug_layer):
        linear = found.mlp.linear_fc2
        right = linear.forward

        def forward(*inputs, right=right):
            output, bias = right(*inputs)
            return output * factor, bias

        linear.forward = forward


BUGS = {"fc2-factor": Bug(_scale_output, "after", ())}
