# SPDX-License-Identifier: Apache-2.0
"""Does a report say the cause that was written down for a bug (samples/*/expected.json)?

Causes are sentences (docs/report.md); what is expected is a kind and its numbers. A kind is one
sentence's form, and the numbers must be those that the bug's mechanism makes.
"""
from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Set

FACTOR = re.compile(r"the reference (times|divided by) (\d+), ([^:]*)")
NOT_REDUCED = re.compile(r"not reduced over (.*): the (sum|mean) of what the ranks hold")
ROWS = re.compile(r"\brows? ([\d, -]+) carr(?:y|ies) ")
ZERO_ROWS = re.compile(r"\brows? ([\d, -]+) (?:is|are) zero in the candidate only")
AGAIN = re.compile(r"with block (\d+) of (\d+) equal blocks along dimension (\d+) again")
PART = re.compile(r"(rank \d+)'s part carries")


def lines_of(text: str) -> Set[int]:
    """Of "4-63, 70"."""
    lines: Set[int] = set()
    for part in filter(None, (word.strip() for word in text.split(","))):
        first, _, last = part.partition("-")
        lines |= set(range(int(first), int(last or first) + 1))
    return lines


def is_factor(what: str, cause: Dict[str, Any]) -> bool:
    found = FACTOR.search(what)
    if not found:
        return False
    number = int(found[2]) if found[1] == "times" else 1 / int(found[2])
    return number == cause["number"] and cause["of"] in re.split(r"[ ,]+", found[3])


def is_not_reduced(what: str, cause: Dict[str, Any]) -> bool:
    found = NOT_REDUCED.search(what)
    if not found or found[2] != cause["by"]:
        return False
    axes = [set(names.split(" or ")) for names in found[1].split(", ")]  # those that lie alike
    return len(axes) == len(cause["axes"]) and all(map(set.__contains__, axes, cause["axes"]))


def are_lines(form: re.Pattern[str]) -> Callable[[str, Dict[str, Any]], bool]:
    def test(what: str, cause: Dict[str, Any]) -> bool:
        found = form.search(what)
        needed, allowed = lines_of(cause["lines"]), lines_of(cause.get("perhaps", ""))
        return bool(found) and needed <= lines_of(found[1]) <= needed | allowed

    return test


def is_value(what: str, cause: Dict[str, Any]) -> bool:
    return re.search(r"\bvalue (of )?`?" + re.escape(cause["of"]), what) is not None


def is_order(what: str, cause: Dict[str, Any]) -> bool:
    found = AGAIN.search(what)
    wanted = (cause["block"], cause["of"], cause["dimension"])
    return bool(found) and tuple(map(int, found.groups())) == wanted


def is_part(what: str, cause: Dict[str, Any]) -> bool:
    found = PART.search(what)
    return bool(found) and found[1] == cause["of"]


TESTS: Dict[str, Callable[[str, Dict[str, Any]], bool]] = {
    "factor": is_factor, "not reduced": is_not_reduced, "rows": are_lines(ROWS),
    "zero rows": are_lines(ZERO_ROWS), "value": is_value, "order": is_order, "part": is_part,
}


def says(causes: List[str], expected: Optional[Dict[str, Any]]) -> str:
    """"right", "wrong" or "none" where a cause is knowable; else "" or "offered"."""
    if expected is None:
        return "offered" if causes else ""
    if not causes:
        return "none"
    test = TESTS[expected["kind"]]
    return "right" if any(test(what, expected) for what in causes) else "wrong"
