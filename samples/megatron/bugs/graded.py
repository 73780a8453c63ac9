# SPDX-License-Identifier: Apache-2.0
"""A bug of any size: one layer's matrix product is off by a factor 1 + 2^-k (`--bug-size k`).

Real bugs are seldom so plain; this one measures how small an error can be and still be seen. The
factor is applied before the product is rounded to the type of the run, as a wrong scale inside of a
kernel is: a factor below half a unit in the last place still moves some of the elements.
"""

from .common import Bug, layer

_FINER = {"torch.bfloat16": "float", "torch.float16": "float", "torch.float32": "double"}


def _scale_product(args, chunks: list) -> None:
    factor = 1 + 2.0 ** -args.bug_size

    def product(input, weight, bias=None, **_):
        finer = _FINER.get(str(input.dtype), "double")
        wide = getattr(input, finer)() @ getattr(weight, finer)().t() * factor
        return (wide if bias is None else wide + bias).to(input.dtype)

    for found in layer(chunks, args.bug_layer):
        found.mlp.linear_fc2._forward_impl = product


BUGS = {"fc2-factor": Bug(_scale_product, "after", ())}
