# SPDX-License-Identifier: Apache-2.0
"""What to capture: the JSON object in TTRACE_OPTIONS, written by ttrace-capture.

    {"what": "outputs", "filters": ["decoder.*", "!*norm*"], "iterations": [[0, 3]], "ranks": null,
     "estimate": false, "init": {"kind": "pack", "path": "..."}, "layout_rules": [...],
     "replay": {"pack": "..."}, "perturb": null}

Every member may be absent. Filters see a key without its iteration and micro-batch,
`phase/module/slot`, and the module alone; a tensor is wanted when one of the plain patterns matches
(or there are none) and no pattern after a "!" does.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

KINDS = {"outputs": "full", "all": "full", "stats": "stats", "hash": "hash"}


class LayoutRule(NamedTuple):
    """A user's statement about a layout, as a --layout FILE has it."""

    pattern: str
    dims: str
    shape: Optional[List[int]]

    def matches(self, phase: str, module: str, slot: str) -> bool:
        """A pattern without a slash is for modules, as in every command that reads such files."""
        name = f"{phase}/{module}/{slot}" if "/" in self.pattern else module
        return fnmatch.fnmatchcase(name, self.pattern)


class Options:
    def __init__(self, members: Dict[str, Any]):
        self.what: str = members.get("what") or "outputs"
        if self.what not in KINDS:
            raise ValueError(f"what: {self.what!r} is none of {', '.join(KINDS)}")
        self.kind = KINDS[self.what]
        self.estimate = bool(members.get("estimate"))
        self.init: Optional[Dict[str, Any]] = members.get("init")
        self.replay: Optional[Dict[str, Any]] = members.get("replay")
        self.perturb: Optional[int] = members.get("perturb")
        self.layout_rules = [LayoutRule(rule["pattern"], rule["dims"], rule.get("shape"))
                             for rule in members.get("layout_rules") or []]
        self._iterations: List[Tuple[int, Optional[int]]] = [
            (first, last) for first, last in members.get("iterations") or []]
        ranks = members.get("ranks")
        self._ranks = None if ranks is None else frozenset(ranks)
        filters: List[str] = members.get("filters") or []
        self._include = [_pattern(text) for text in filters if not text.startswith("!")]
        self._exclude = [_pattern(text[1:]) for text in filters if text.startswith("!")]

    @classmethod
    def from_environment(cls) -> "Options":
        return cls(json.loads(os.environ.get("TTRACE_OPTIONS") or "{}"))

    def wants_iteration(self, iteration: int) -> bool:
        """Without intervals all are wanted; an interval that ends in None never ends."""
        return not self._iterations or any(
            first <= iteration and (last is None or iteration <= last)
            for first, last in self._iterations)

    def wants_rank(self, rank: int) -> bool:
        return self._ranks is None or rank in self._ranks

    @property
    def filtered(self) -> bool:
        return bool(self._include or self._exclude)

    def wants(self, phase: str, module: str, slot: str) -> bool:
        names = (f"{phase}/{module}/{slot}", module)
        if any(pattern.match(name) for pattern in self._exclude for name in names):
            return False
        return not self._include or any(
            pattern.match(name) for pattern in self._include for name in names)

    def rule_for(self, phase: str, module: str, slot: str) -> Optional[LayoutRule]:
        """The first that matches, as everywhere."""
        return next((rule for rule in self.layout_rules if rule.matches(phase, module, slot)), None)


def _pattern(glob: str) -> "re.Pattern[str]":
    return re.compile(fnmatch.translate(glob))
