# SPDX-License-Identifier: Apache-2.0
"""Process groups that collectives were called on: who is in them, and how many calls there were.

torch gives a group the same name on all of its members. A name is used again after the groups have
been destroyed; the second group of name "0" is called "0#2".
"""

from __future__ import annotations

import collections
import itertools
import weakref
from typing import Any, Counter, Dict


class Group:
    def __init__(self, process_group: Any, name: str):
        self.name = name
        self.member = process_group.rank()
        self.size = process_group.size()
        self.told = False  # to rank.json
        self.process_group = weakref.ref(process_group)
        self._calls = itertools.count()

    def next_call(self) -> int:
        return next(self._calls)


class Groups:
    def __init__(self, torch: Any, library: Any):
        self._distributed = torch.distributed
        self._library = library
        self._groups: Dict[str, Group] = {}
        self._made: Counter[str] = collections.Counter()  # of a name

    def find(self, process_group: Any) -> Group:
        name = process_group.group_name
        group = self._groups.get(name)
        if group is None or group.process_group() is not process_group:
            self._made[name] += 1
            known = name if self._made[name] == 1 else f"{name}#{self._made[name]}"
            group = self._groups[name] = Group(process_group, known)
        return group

    def tell(self, group: Group) -> None:
        """Rank.json of its members, once."""
        if group.told:
            return
        group.told = True
        try:
            ranks = self._distributed.get_process_group_ranks(group.process_group())
        except (KeyError, RuntimeError, ValueError):
            return  # one that torch.distributed has not made: readers join what members wrote
        self._library.group(group.name, ranks)
