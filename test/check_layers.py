# SPDX-License-Identifier: Apache-2.0
"""Fails on any #include that points against the arrows of the architecture.

The table is the architecture: what each folder may include of the others. Third-party headers have
their places, too: HDF5 and JSON stay in libttrace's .cpp files and in programs.
"""
import re
import sys
from pathlib import Path

# Longest matching prefix of a file's path decides. Programs may be listed by file name.
MAY_INCLUDE = {
    "libttrace/core/": {"libttrace/core/"},
    "libttrace/": {"libttrace/core/", "libttrace/"},
    "capture/": {"libttrace/core/", "capture/", "capture/feed"},
    # What a traced process needs to be fed; its own library, without HDF5.
    "capture/feed": {"libttrace/core/", "libttrace/layout.hpp", "libttrace/pack.hpp", "capture/feed"},
    "capture/writer": {"libttrace/core/", "libttrace/", "capture/", "capture/writer"},  # a process of its own
    "diff/": {"libttrace/core/", "libttrace/", "diff/"},
    "tolerance/": {"libttrace/core/", "libttrace/", "diff/", "tolerance/"},
    "invariant/": {"libttrace/core/", "libttrace/", "invariant/"},
    "invariant/builtin/": {"libttrace/core/", "libttrace/", "diff/", "invariant/", "invariant/builtin/"},
    "tools/": {"libttrace/core/", "libttrace/", "capture/", "diff/", "tolerance/", "invariant/", "invariant/builtin/", "tools/"},
    "samples/": {"capture/ttrace.h", "capture/ttrace.hpp", "ttrace.h", "samples/"},
    "test/": None,  # everything
    "bench/": None,
}
# Third-party prefixes and the folders (file suffix) that may include them.
THIRD_PARTY = {
    "hdf5.h": ("libttrace/h5", "libttrace/segment", "test/", "bench/"),
    "H5": ("libttrace/h5", "libttrace/segment", "test/", "bench/"),
    "nlohmann/": ("libttrace/", "capture/feed", "capture/writer", "diff/", "invariant/builtin/report", "tolerance/", "tools/", "test/", "bench/"),
    "zlib.h": ("invariant/", "test/", "bench/"),
    "simdjson": ("invariant/", "test/", "bench/"),
    "CLI/": ("tools/", "bench/"),
    "xxhash.h": ("libttrace/", "invariant/", "capture/hash.cpp", "test/", "bench/"),
    "hwy/": ("diff/", "test/", "bench/"),
    "cuda": ("diff/", "capture/", "test/", "bench/", "samples/nccl/"),
    "cub/": ("diff/", "bench/"),
    "nccl.h": ("capture/", "test/", "bench/", "samples/nccl/"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def owner(path: str) -> str:
    return max((prefix for prefix in MAY_INCLUDE if path.startswith(prefix)), key=len, default="")


def complaints(root: Path):
    files = [p for suffix in ("*.cpp", "*.hpp", "*.h", "*.c", "*.cu") for p in root.rglob(suffix)]
    ours = {str(p.relative_to(root)) for p in files}
    for file in sorted(ours):
        if file.startswith(("build", ".venv")):
            continue
        folder = owner(file)
        if not folder:
            yield f"{file}: lies in no folder of the table"
            continue
        for number, line in enumerate((root / file).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            where = f"{file}:{number}: includes {target}"
            if target in ours:
                allowed = MAY_INCLUDE[folder]
                if allowed is not None and owner(target) not in allowed and target not in allowed:
                    yield f"{where}, but {folder} may only include {', '.join(sorted(allowed))}"
            for prefix, places in THIRD_PARTY.items():
                if target.startswith(prefix) and target not in ours:
                    if not file.startswith(places):
                        yield f"{where}: {prefix} belongs to {', '.join(places)}"
                    elif prefix in ("nlohmann/", "hdf5.h", "xxhash.h", "simdjson") and file.endswith(".hpp") and not file.startswith("libttrace/h5"):
                        yield f"{where}: {prefix} stays out of headers"


if __name__ == "__main__":
    found = list(complaints(Path(__file__).resolve().parent.parent))
    print("\n".join(found) or "layers: every include follows the arrows")
    sys.exit(1 if found else 0)
