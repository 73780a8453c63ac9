# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed, recorded when ttrace-capture --comm asks for them.

operators: what they are. intercept, methods: where they are seen. observer: what is done then. rows
and buffers: what is written. groups, scopes: who calls them, and from where.
"""

from __future__ import annotations

from typing import Any

from . import intercept, methods
from .observer import Observer


def start(agent: Any, torch: Any) -> Observer:
    observer = Observer(agent, torch, agent.library.collectives_wanted())
    try:
        observer.kept = intercept.install(torch, observer)
    except Exception as error:
        methods.install(torch, observer)
        agent.note("not recorded", "collectives that C++ calls", "this torch has no place to see "
                   f"them ({error!r}): those of DDP's reducer, DTensor and functional ones")
    return observer
