# SPDX-License-Identifier: Apache-2.0
"""Named tensors in a mapped file (docs/format.md): what --init-from and --replay give to a run."""

from __future__ import annotations

import json
import math
import mmap
import struct
from typing import Any, Dict

_MAGIC = b"TTRACEPK"


class PackError(Exception):
    """What went wrong, for one line: where and why."""


class Pack:
    def __init__(self, path: str, torch: Any):
        self._torch = torch
        try:
            with open(path, "rb") as file:
                # Copy on write: torch asks for writable memory, nothing is ever written.
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            if self._bytes[:8] != _MAGIC:
                raise PackError(f"{path}: not a pack")
            (length,) = struct.unpack("<Q", self._bytes[8:16])
            self.index: Dict[str, Any] = json.loads(self._bytes[16:16 + length])
            self.tensors: Dict[str, Any] = self.index["tensors"]
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise PackError(f"{path}: {error}") from error
        self._payloads = -(-(16 + length) // 64) * 64

    def tensor(self, name: str) -> Any:
        entry = self.tensors[name]
        shape, dtype = entry["shape"], getattr(self._torch, entry["dtype"])
        count = math.prod(shape)
        if count == 0:
            return self._torch.empty(shape, dtype=dtype, device="cpu")
        return self._torch.frombuffer(self._bytes, dtype=dtype, count=count,
                                      offset=self._payloads + entry["offset"]).view(shape)
