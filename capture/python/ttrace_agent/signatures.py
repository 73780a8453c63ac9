# SPDX-License-Identifier: Apache-2.0
"""python3 -m ttrace_agent.signatures TRACE... > signatures.json

Writes the parameters of every function that the traces name, so that programs without Python can
give names to positional arguments. A trace is a folder with trace_API_* files, or such a file. Run
it where the traced program ran, with the same libraries: what they name is imported.

The table: {"torch.nn.init.normal_": [["tensor", "N"], ["mean", "N", {"float": 0.0}], ...]}, null
where Python cannot tell. P, N, V, K, W: by position only, either way, *args, by name only,
**kwargs; the default follows as a typed value. "...__init__@class" is the same for context
managers, whose class may lie in a module with a capital letter.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import re
import sys
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set

if not __package__:  # started by path: this folder's modules must not hide others
    _folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _folder]

PASSING = {
    inspect.Parameter.POSITIONAL_ONLY: "P",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "N",
    inspect.Parameter.VAR_POSITIONAL: "V",
    inspect.Parameter.KEYWORD_ONLY: "K",
    inspect.Parameter.VAR_KEYWORD: "W",
}
SCALARS = (type(None), bool, int, float, str)
FUNCTION = re.compile(r'"function": ?("(?:[^"\\]|\\.)*")')
Table = Dict[str, Optional[List[list]]]


def trace_files(trace: str) -> List[str]:
    if not os.path.isdir(trace):
        return [trace]
    names = sorted(name for name in os.listdir(trace) if name.startswith("trace_API"))
    if not names:
        raise OSError(f"{trace}: holds no trace_API_* file; give the folder that "
                      "traincheck-collect wrote (its --output-dir)")
    return [os.path.join(trace, name) for name in names]


def function_names(lines: Iterable[str], known: Set[str]) -> Iterator[str]:
    """Names that are not known yet. A line is parsed only when it shows a new one."""
    for line in lines:
        shown = FUNCTION.search(line)
        if shown is None or shown.group(1) in known:
            continue
        try:
            name = json.loads(line)["function"]
        except (ValueError, KeyError, TypeError):
            continue  # a damaged line
        known.add(shown.group(1))
        if isinstance(name, str):
            yield name


def typed(value: Any) -> Dict[str, Any]:
    """A default as the traces write a value: its type, and what JSON can hold of it."""
    kind = type(value)
    if kind in SCALARS:
        return {kind.__name__: value}
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in ("torch.dtype", "torch.device"):
        return {name: str(value)}
    if name == "torch.Size":
        return {name: list(value)}
    if kind in (list, tuple, dict):
        try:
            return {kind.__name__: json.loads(json.dumps(value))}
        except (TypeError, ValueError):
            pass
    return {kind.__qualname__ if kind.__module__ == "builtins" else name: plain_attributes(value)}


def plain_attributes(value: Any) -> Dict[str, Any]:
    found = {}
    for name in dir(value):
        if name.startswith("_"):
            continue
        try:
            member = getattr(value, name)
        except Exception:
            continue
        if type(member) in SCALARS:
            found[name] = member
    return found


def module_length(parts: List[str]) -> int:
    """How many parts of a name are the module: all before the first class, else all but one."""
    for place in range(2, len(parts)):
        if parts[place][:1].isupper():
            return place
    return len(parts) - 1


def parameters(parts: List[str], length: int) -> Optional[List[list]]:
    try:
        found: Any = importlib.import_module(".".join(parts[:length]))
        for part in parts[length:]:
            found = getattr(found, part)
    except (Exception, SystemExit):  # there is no such thing
        return None
    return parameters_of(found)


def parameters_of(function: Any) -> Optional[List[list]]:
    if not callable(function):
        return None
    try:
        listed = []
        for parameter in inspect.signature(function).parameters.values():
            row: list = [parameter.name, PASSING[parameter.kind]]
            if parameter.default is not parameter.empty:
                row.append(typed(parameter.default))
            listed.append(row)
        return listed
    except (Exception, SystemExit):  # it has no signature
        return None


def table_of(names: Iterable[str]) -> Table:
    table: Table = {}
    for name in sorted(set(names)):
        parts = name.split(".")
        if len(parts) < 3:
            table[name] = None
            continue
        table[name] = parameters(parts, module_length(parts))
        if parts[-1] == "__init__":
            table[name + "@class"] = parameters(parts, len(parts) - 2)
    return table


def main(traces: List[str]) -> int:
    if not traces or any(trace.startswith("-") for trace in traces):
        print(__doc__, file=sys.stdout if traces in (["-h"], ["--help"]) else sys.stderr)
        return 0 if traces in (["-h"], ["--help"]) else 2
    names: Set[str] = set()
    known: Set[str] = set()
    try:
        for trace in traces:
            for path in trace_files(trace):
                with open(path, encoding="utf-8", errors="replace") as lines:
                    names.update(function_names(lines, known))
    except OSError as error:
        print(f"signatures: {error}", file=sys.stderr)
        return 2
    with contextlib.redirect_stdout(sys.stderr):  # what is imported may print
        table = table_of(names)
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table.items()))
    print("{\n" + ",\n".join(rows) + "\n}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
