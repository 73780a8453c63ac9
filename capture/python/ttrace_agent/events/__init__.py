# SPDX-License-Identifier: Apache-2.0
"""Records what a program calls, and when its parameters change: for invariants.

`ttrace-capture --events` arms this package in place of the tensor capture. Functions and methods of
torch are replaced by wrappers, once; nothing that belongs to the program is: no container, no
object, no source. Every rank writes one file, events.bin (docs/format.md).
"""

from __future__ import annotations

from typing import Any

from .recording import Recording

_recording: Any = None


def start(torch: Any, selected: Any = None) -> None:
    """`selected`: path of a file of invariants, to record only what these need."""
    global _recording
    if _recording is None:
        _recording = Recording(torch, selected)
        _recording.install()
