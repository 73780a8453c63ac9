# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed, recorded when ttrace-capture --comm asks for them.

operators: what they are. intercept: where they are seen. observer: what is done then. rows and
buffers: what is written. groups, scopes: who calls them, and from where.
"""

from __future__ import annotations

from typing import Any

from . import intercept
from .observer import Observer


def start(agent: Any, torch: Any) -> Observer:
    observer = Observer(agent, torch, agent.library.collectives_wanted())
    observer.kept = intercept.install(torch, observer)
    return observer
