# SPDX-License-Identifier: Apache-2.0
"""The data in test/golden, unpacked where a test wants them."""
from __future__ import annotations

import gzip
import json
import os
import pathlib
import tarfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", GOLDEN.parents[1] / "build"))


def traces() -> list[str]:
    return sorted(path.name.removesuffix(".trace.tar.gz") for path in GOLDEN.glob("*.trace.tar.gz"))


def trace(name: str, folder: pathlib.Path) -> pathlib.Path:
    """The folder that traincheck-collect wrote."""
    place = folder / name
    if not place.exists():
        place.mkdir(parents=True)
        with tarfile.open(GOLDEN / f"{name}.trace.tar.gz") as packed:
            for member in packed.getmembers():
                (place / member.name).write_bytes(packed.extractfile(member).read())
    return place


def lines(name: str) -> list[str]:
    with gzip.open(GOLDEN / name, "rt") as text:
        return text.read().splitlines()


def unpacked(name: str, folder: pathlib.Path) -> pathlib.Path:
    place = folder / name.removesuffix(".gz")
    place.write_bytes(gzip.decompress((GOLDEN / name).read_bytes()))
    return place


def exact(value: object) -> object:
    """For comparing: types, order of members and the sign of zero count, a NaN equals itself."""
    if isinstance(value, dict):
        return [(key, exact(member)) for key, member in value.items()]
    if isinstance(value, list):
        return ["list", *map(exact, value)]
    return (type(value).__name__, repr(value))


def parsed(text: str) -> object:
    return exact(json.loads(text))
