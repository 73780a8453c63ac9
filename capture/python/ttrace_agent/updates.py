# SPDX-License-Identifier: Apache-2.0
"""Updates that no torch optimizer makes: `p -= lr * p.grad` in the program's own loop.

Every in-place change of a tensor raises its version. Between two forward passes of one iteration
(micro-batches) nobody writes to parameters, so a version that has grown means a step, unless some
optimizer exists, whose steps are seen as such.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any


def _version_of(module: Any) -> int:
    try:
        return sum(parameter._version for parameter in module.parameters())
    except RuntimeError:  # tensors made in inference mode have none
        return 0


class UpdatesByHand:
    def __init__(self, torch: Any):
        self._torch = torch
        self._versions: Any = weakref.WeakKeyDictionary()  # by root module
        self._possible = True

    def forget(self) -> None:
        """An iteration begins."""
        self._versions.clear()

    def watch(self, module: Any) -> None:
        """A root's forward pass begins; the first of an iteration counts."""
        if self._possible and module is not None and module not in self._versions:
            self._versions[module] = _version_of(module)

    def seen(self) -> bool:
        if not self._possible or all(_version_of(module) == before
                                     for module, before in self._versions.items()):
            return False
        self._possible = not self._an_optimizer_exists()
        return self._possible

    def rule_out(self) -> None:
        """An optimizer has stepped."""
        self._possible = False

    def _an_optimizer_exists(self) -> bool:
        optimizer = self._torch.optim.Optimizer
        return any(issubclass(type(each), optimizer) for each in gc.get_objects())
