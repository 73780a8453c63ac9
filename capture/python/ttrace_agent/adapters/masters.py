# SPDX-License-Identifier: Apache-2.0
"""What a tensor that only an optimizer holds stands for; adapters tell, targets.py asks."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple


class Master(NamedTuple):
    """A parameter, whole or a piece of it, in a tensor that a torch optimizer updates."""

    parameter: Any
    flat: Optional[Dict[str, Any]] = None  # the piece of the parameter, as in /layouts
    part: Optional[Tuple[int, int]] = None  # where in the tensor it lies: first element, count
    source: str = "megatron"


Masters = Dict[int, Tuple[Any, List[Master]]]  # by id of the tensor that is stepped
