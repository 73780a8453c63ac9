# SPDX-License-Identifier: Apache-2.0
"""Prints the prefixes of the NCCL wheels that this Python can import, one a line; nothing if none."""
import importlib.util
import pathlib

spec = importlib.util.find_spec("nvidia")
for base in spec.submodule_search_locations if spec else []:
    for sub in ("nccl", "cu13"):
        if (pathlib.Path(base) / sub / "include" / "nccl.h").is_file():
            print(pathlib.Path(base) / sub)
