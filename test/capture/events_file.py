# SPDX-License-Identifier: Apache-2.0
"""Reads events.bin as docs/format.md describes it, with Python alone: what the tests of the
recording see of a file, independent of the readers in C++."""
import pathlib
import struct
import zlib

PROCESS, DEFINITIONS, FUNCTIONS, META, ROWS = range(5)
PRE, POST, EXCEPTION, STATE, _, CONTENT = range(6)


class Event:
    def __init__(self, kind, name, time, meta, thread, parent=None):
        self.kind, self.name, self.time, self.meta, self.thread = kind, name, time, meta, thread
        self.parent = parent  # function of the enclosing call
        self.arguments = self.keywords = self.result = self.error = self.object = None
        self.attributes = self.where = None
        self.contents = {}  # of a call: hashes of arguments


def _text(data, at):
    size, = struct.unpack_from("<I", data, at)
    return data[at + 4:at + 4 + size].decode(), at + 4 + size


def value(data, at):
    tag, at = data[at:at + 1], at + 1
    if tag in b"ntf":
        return {b"n": None, b"t": True, b"f": False}[tag], at
    if tag in b"id":
        return struct.unpack_from("<" + {b"i": "q", b"d": "d"}[tag], data, at)[0], at + 8
    if tag == b"s":
        return _text(data, at)
    if tag == b"T":
        kind, at = _text(data, at)
        dtype, at = _text(data, at)
        device, at = _text(data, at)
        layout, at = _text(data, at)
        flags, itemsize, count = struct.unpack_from("<3I", data, at)
        at += 12
        shape = list(struct.unpack_from(f"<{count}q", data, at))
        return {kind: {"dtype": dtype, "device": device, "layout": layout, "flags": flags,
                       "itemsize": itemsize, "shape": shape}}, at + 8 * count
    count, = struct.unpack_from("<I", data, at)
    at += 4
    if tag == b"l":
        members = []
        for _ in range(count):
            member, at = value(data, at)
            members.append(member)
        return members, at
    assert tag == b"o", tag
    members = {}
    for _ in range(count):
        name, at = _text(data, at)
        members[name], at = value(data, at)
    return members, at


def block(kind, tag, payload):
    """The bytes of one."""
    return struct.pack("<4sIIIQ", b"TTEB", kind, len(payload), zlib.crc32(payload), tag) + payload


def blocks(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"TTREVENT" and data[8:12] == b"\1\0\0\0", data[:16]
    at = 16
    while at + 24 <= len(data):
        magic, kind, size, check, thread = struct.unpack_from("<4sIIIQ", data, at)
        assert magic == b"TTEB", at
        payload = data[at + 24:at + 24 + size]
        if len(payload) < size:
            return
        assert zlib.crc32(payload) == check, at
        yield kind, thread, payload
        at += 24 + size


class Events:
    def __init__(self, path):
        self.process, self.list, self.parameters = None, [], {}
        texts, functions, metas, stacks = {}, {}, [], {}
        for kind, thread, payload in blocks(path):
            at = 0
            if kind == PROCESS:
                self.process, _ = value(payload, 0)
            elif kind == META:
                metas.append((thread, value(payload, 0)[0]))
            elif kind == DEFINITIONS:
                while at < len(payload):
                    texts[thread], at = value(payload, at)
                    thread += 1
            elif kind == FUNCTIONS:
                while at < len(payload):
                    (number, name, bound, self.parameters[name]), at = value(payload, at)
                    functions[number] = name, bound
            else:
                self._rows(payload, thread, texts, functions, metas, stacks.setdefault(thread, []))
        self.open = {thread: stack for thread, stack in stacks.items() if stack}

    def _rows(self, payload, thread, texts, functions, metas, stack):
        rows = list(struct.iter_unpack("<4q", payload))
        contents = {}  # in the tests never in another block than the call
        for place, (code, time, first, second) in enumerate(rows):
            kind, number = code & 7, code >> 3
            if kind <= STATE:
                meta = [members for since, members in metas if since <= time][-1]
            if kind == PRE:
                event = Event(PRE, functions[number][0], time, meta, thread,
                              stack[-1] if stack else None)
                if first >= 0:
                    event.arguments, event.keywords = texts[first]
                event.object = second if functions[number][1] else None
                event.contents, contents = contents, {}
                stack.append(event.name)
            elif kind in (POST, EXCEPTION):
                event = Event(kind, functions[number][0], time, meta, thread)
                assert stack.pop() == event.name
                event.parent = stack[-1] if stack else None
                if kind == EXCEPTION:
                    event.error = texts[first]
                elif first >= 0:
                    event.result = texts[first]
            elif kind == STATE:
                event = Event(STATE, texts[number], time, meta, thread,
                              stack[-1] if stack else None)
                _, data, grad, flags = rows[place + 1]
                event.attributes = {"meta": texts[first], "data": data if flags & 1 else None,
                                    "grad": grad if flags & 2 else None, "flags": flags}
                event.where = texts[second]
            else:
                if kind == CONTENT:
                    contents[texts[number]] = time
                continue
            self.list.append(event)

    def calls(self):
        return [event for event in self.list if event.kind == PRE]

    def states(self, name=None):
        return [event for event in self.list
                if event.kind == STATE and (name is None or event.name == name)]
