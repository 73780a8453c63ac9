# SPDX-License-Identifier: Apache-2.0
"""The Megatron sample with two experts that are tied but for rounding, in every router.

Their rows of the router's weights differ by a unit in the last place, so the order of summation
decides which one is chosen. --other-order adds up the two halves of the hidden dimension, as
another kernel might.
"""
import pathlib
import sys

SAMPLE = pathlib.Path(__file__).resolve().parents[3] / "samples/megatron"
OTHER_ORDER = "--other-order" in sys.argv
sys.argv = [word for word in sys.argv if word != "--other-order"]
sys.path.insert(0, str(SAMPLE))

import pretrain_gpt  # noqa: E402
import torch  # noqa: E402
from megatron.core.transformer.moe import router  # noqa: E402

reset = router.Router.reset_parameters
linear = router.router_gating_linear


def reset_tied(module):
    reset(module)
    with torch.no_grad():
        module.weight[2] = module.weight[1] * (1 + 2.0 ** -23)
        if module.bias is not None:
            module.bias[2] = module.bias[1]


def linear_in_halves(tokens, weight, bias, dtype):
    half = tokens.shape[-1] // 2
    return (linear(tokens[..., :half], weight[:, :half], bias, dtype)
            + linear(tokens[..., half:], weight[:, half:], None, dtype))


router.Router.reset_parameters = reset_tied
if OTHER_ORDER:
    router.router_gating_linear = linear_in_halves
pretrain_gpt.main()
