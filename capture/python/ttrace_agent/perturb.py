# SPDX-License-Identifier: Apache-2.0
"""--perturb SEED: each tensor between modules is off by one unit in the last place, here and there.

A run like any other that rounds a little differently: what it does to later tensors is the noise
that rounding makes in this model. Each element moves with probability 1/6, up or down; exact zeros
stay, because structural zeros (masks, untouched rows) are the same in every layout. The choice is a
function of the seed and of the tensor's key.
"""

from __future__ import annotations

import zlib
from typing import Any, Callable, Optional

from .overwrite import TapKey

_PROBABILITY = 1 / 6


class Perturbation:
    def __init__(self, agent: Any, torch: Any, seed: int):
        self._agent = agent
        self._torch = torch
        self._seed = seed
        self._integers = {torch.float64: torch.int64, torch.float32: torch.int32,
                          torch.bfloat16: torch.int16, torch.float16: torch.int16}

    def value(self, key: TapKey, tensor: Any) -> Optional[Callable[[], Any]]:
        if tensor.dtype not in self._integers or type(tensor) is not self._torch.Tensor:
            return None
        return lambda: self._perturbed(key, tensor)

    def _perturbed(self, key: TapKey, tensor: Any) -> Any:
        torch = self._torch
        with torch.no_grad():
            text = f"{self._seed}/{self._agent.steps.iteration}/{'/'.join(map(str, key))}"
            generator = torch.Generator(device="cpu")
            generator.manual_seed(zlib.crc32(text.encode()))  # it takes no more than 32 bits
            draw = torch.rand(tensor.shape, generator=generator, device="cpu").to(tensor.device)
            step = (draw < _PROBABILITY / 2).int() - (draw >= 1 - _PROBABILITY / 2).int()
            plain = torch.empty_like(tensor.detach()).copy_(tensor)
            moving = torch.isfinite(plain) & (plain != 0) & (
                plain.abs() < torch.finfo(plain.dtype).max)
            # The bits of a number are its size in units in the last place, under the sign.
            bits = plain.view(self._integers[plain.dtype])
            bits.add_((step * moving).to(bits.dtype))
            return plain
