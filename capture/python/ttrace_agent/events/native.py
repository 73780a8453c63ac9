# SPDX-License-Identifier: Apache-2.0
"""The compiled part, which lies beside the library of the capture (capture/events)."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

_NAME = "_ttrace_events"


def _load() -> Any:
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    folder = os.path.dirname(os.environ["TTRACE_LIB"])
    spec = importlib.util.spec_from_file_location(_NAME, os.path.join(folder, f"{_NAME}.abi3.so"))
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    sys.modules[_NAME] = module
    return module


_module = _load()
Describer, Looker, Recorder = _module.Describer, _module.Looker, _module.Recorder
Rows, Variable, use_torch = _module.Rows, _module.Variable, _module.use_torch
