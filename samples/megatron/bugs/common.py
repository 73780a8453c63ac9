# SPDX-License-Identifier: Apache-2.0
"""What every bug is: a function, when it is applied, and what a layout needs for it to matter."""

from typing import Callable, Iterator, NamedTuple, Tuple


class Bug(NamedTuple):
    apply: Callable
    # "before" the model is built: apply(args); "after": apply(args, chunks);
    # "optimizer": apply(args, optimizer), when that is built, too
    when: str
    needs: Tuple[str, ...]  # what the run must have, else the bug has nothing to act on


def layers(chunks: list) -> Iterator:
    """All transformer layers that this rank holds."""
    from megatron.core.transformer.transformer_layer import TransformerLayer

    for chunk in chunks:
        for module in chunk.modules():
            if isinstance(module, TransformerLayer):
                yield module


def layer(chunks: list, global_layer: int) -> Iterator:
    """The layer with this global number, if this rank holds it."""
    for module in layers(chunks):
        if module.layer_number - 1 == global_layer:
            yield module
