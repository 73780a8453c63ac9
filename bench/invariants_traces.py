# SPDX-License-Identifier: Apache-2.0
"""Long traces of TrainCheck's: a golden one, repeated as if its program had gone on."""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Dict, List

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "test" / "invariant"))
import golden  # noqa: E402

GAP = 1_000_000  # ns between two rounds


def repeated(name: str, times: int, folder: pathlib.Path) -> pathlib.Path:
    """The trace `times` times, one round after the other: times, call ids and steps go on."""
    place = folder / f"{name}_{times}x"
    if (place / "done").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    files = {path.name: [json.loads(line) for line in path.read_text().splitlines()]
             for path in golden.trace(name, folder / "golden").iterdir()}
    records = [record for lines in files.values() for record in lines]
    length = max(r["time"] for r in records) - min(map(begin, records)) + GAP
    steps = max(r["meta_vars"].get("step", 0) for r in records) + 1
    for file, lines in files.items():
        with (place / file).open("w") as out:
            for number in range(times):
                for record in lines:
                    out.write(json.dumps(shifted(record, number * length, number * steps)) + "\n")
    (place / "done").touch()
    return place


def begin(record: Dict[str, Any]) -> int:
    """When it was taken: the ns in a call's id come before the time of its record."""
    call = record.get("func_call_id")
    return record["time"] if call is None else min(record["time"], int(call.rsplit("_", 1)[1]))


def shifted(record: Dict[str, Any], time: int, steps: int) -> Dict[str, Any]:
    record = dict(record, time=record["time"] + time)
    if "func_call_id" in record:
        thread, start = record["func_call_id"].rsplit("_", 1)
        record["func_call_id"] = f"{thread}_{int(start) + time}"
    if "step" in record["meta_vars"]:
        record["meta_vars"] = dict(record["meta_vars"], step=record["meta_vars"]["step"] + steps)
    return record


def size_of(trace: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in trace.iterdir()
               if path.name.startswith(("trace_", "proxy_log")))


def signatures(folder: pathlib.Path) -> pathlib.Path:
    return golden.unpacked("signatures.json.gz", folder)


def invariants_in(path: pathlib.Path) -> Dict[str, Dict[str, Any]]:
    """By what they say: the order of clauses and values does not count, nor do examples."""
    found = {}
    for line in path.read_text().splitlines():
        invariant = json.loads(line)
        found[key_of(invariant)] = invariant
    return found


def key_of(invariant: Dict[str, Any]) -> str:
    return json.dumps([invariant["relation"], invariant["params"],
                       {group: condition_key(condition)
                        for group, condition in invariant["precondition"].items()}],
                      sort_keys=True)


def condition_key(condition: Dict[str, Any]) -> List[Any]:
    conjunctions = []
    for conjunction in condition["preconditions"]:
        clauses = conjunction["clauses"]
        if clauses != "Unconditional":
            clauses = sorted(json.dumps({**clause, "values": sorted(
                map(json.dumps, clause.get("values", [])))}, sort_keys=True) for clause in clauses)
        conjunctions.append(clauses)
    return [condition["inverted"], sorted(conjunctions, key=json.dumps)]


def verdicts_in(results: pathlib.Path) -> Dict[str, str]:
    """Of the folder that a check wrote: F, P or N by invariant."""
    letters = {"failed.log": "F", "passed.log": "P", "not_triggered.log": "N"}
    found = {}
    for path in results.rglob("*.log"):
        if path.name not in letters:
            continue
        decoder, text, at = json.JSONDecoder(), path.read_text(), 0
        while at < len(text):
            result, at = decoder.raw_decode(text, at)
            found[key_of(result["invariant"])] = letters[path.name]
            while at < len(text) and text[at].isspace():
                at += 1
    return found
