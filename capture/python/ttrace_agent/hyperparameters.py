# SPDX-License-Identifier: Apache-2.0
"""What an optimizer was told to do in a step: its settings, and how often it has stepped before.

With the gradient and the state, which are recorded anyway, that determines the update, so that it
can be computed again from the trace alone.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

from .targets import Targets


def describe(optimizer: Any, targets: Targets, torch: Any) -> List[Dict[str, Any]]:
    """One entry a parameter group, for `updates` of rank.json; before the step."""
    if getattr(optimizer, "grad_scale", None) is not None:
        return []  # the step divides gradients by a scale that is not known here
    kind = type(optimizer)
    if kind.__module__.startswith("torch.distributed.optim"):
        return []  # hands on to the step of another optimizer, which is asked, too
    entries = []
    for group in optimizer.param_groups:
        names: List[str] = []
        steps: List[Optional[int]] = []
        for stepped in group["params"]:
            if getattr(stepped, "grad", None) is None:
                continue
            taken = _steps_taken(optimizer.state.get(stepped) or {}, torch)
            for target in targets.find(stepped):
                names.append(target.name)
                steps.append(taken)
        if names:
            entries.append({"class": f"{kind.__module__}.{kind.__qualname__}",
                            "values": _values(group, torch), "parameters": names,
                            "steps": steps[0] if len(set(steps)) == 1 else steps})
    return entries


def _steps_taken(state: Dict[str, Any], torch: Any) -> Optional[int]:
    """0: it has no state yet; None: it has, and does not say for how many steps."""
    if not any(value is not None for value in state.values()):
        return 0
    step = state.get("step")
    if isinstance(step, (int, float)) or isinstance(step, torch.Tensor) and step.numel() == 1:
        return int(step)
    return None


def _values(group: Dict[str, Any], torch: Any) -> Dict[str, Any]:
    values = {}
    for name, value in group.items():
        if name == "params":
            continue
        plain = _plain(value, torch)
        if plain is not None:
            values[name] = plain
    return values


def _plain(value: Any, torch: Any) -> Any:
    """A number, or a list of numbers; None of all else."""
    if isinstance(value, torch.Tensor):
        value = float(value) if value.numel() == 1 else None
    if isinstance(value, (bool, int, float)):
        return value if math.isfinite(value) else None
    if isinstance(value, (tuple, list)):
        numbers = [_plain(entry, torch) for entry in value]
        return None if None in numbers else numbers
    return None
