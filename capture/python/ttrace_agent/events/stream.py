# SPDX-License-Identifier: Apache-2.0
"""Rows of events: a list a thread, and the file that they go to (docs/format.md, events.bin).

A row is four integers. Threads append to rows of their own without a lock; flush() cuts what is
there off all lists and writes it, a block a thread, after the definitions that it refers to. It is
called at a bound, at the end, and when the meta variables change (at each step, that is) unless it
was just before: a process that is killed loses what it recorded since then, and whatever is in the
file is whole.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import signatures
from . import encoding, native

HEADER = b"TTREVENT" + struct.pack("<II", 1, 0)  # version, reserved
_BLOCK = struct.Struct("<4sIIIQ")  # magic, kind, bytes, CRC-32 of them, thread
_MAGIC = b"TTEB"
PROCESS, DEFINITIONS, FUNCTIONS, META, ROWS = range(5)
PRE, POST, EXCEPTION = range(3)  # low three bits of a row's first integer; native: 3, 4
ROWS_KEPT = 4 * 16384  # integers of one thread, at most that many plus one call's
PATIENCE = 50_000_000  # ns that what was recorded may wait for a later step
BACKLOG = 64 << 20  # bytes that may wait for the rank to be known


class Local(threading.local):
    """`rows` is None while this thread's calls are not to be recorded."""

    def __init__(self, stream: "Stream"):
        self.rows: Any = native.Rows()
        self.in_root = False  # inside a call of a whole model
        self.importing = 0
        self.depth = 0  # of steps
        stream.adopt(self.rows)


class Stream:
    def __init__(self, open_file: Callable[[bool], Optional[Tuple[int, Any]]]):
        """`open_file(last)`: descriptor and description of this process; None: not yet, and after
        the last time of asking never."""
        self._open_file = open_file
        self._lock = threading.RLock()
        self._file: Optional[int] = None
        self._closed = False
        self._written = 0  # when, ns
        self._marks: List[Tuple[int, Dict[str, Any]]] = []  # meta variables, and since when they hold
        self._blocks = bytearray()  # to be written; they wait until the file is open
        self._pending = bytearray()  # definitions
        self._defined = 0
        self._first = 0  # number of the first that is pending
        self._numbers: Dict[str, int] = {}  # of texts
        self._threads: List[Tuple[int, Any]] = []
        self.functions: List[Tuple[str, bool, Any]] = []
        self._known: set = set()  # first integers of rows whose functions the file knows
        self.local = Local(self)

    def adopt(self, rows: Any) -> None:
        with self._lock:
            if len(self._threads) > 64:  # threads that have ended
                alive = {thread.ident for thread in threading.enumerate()}
                self._threads = [entry for entry in self._threads if len(entry[1]) or entry[0] in alive]
            self._threads.append((threading.get_ident(), rows))

    # ---- definitions ----

    def function(self, name: str, bound: bool, source: Any) -> int:
        self.functions.append((name, bound, source))
        return len(self.functions) - 1

    def define(self, value: bytes) -> int:
        with self._lock:
            self._pending += value
            self._defined += 1
            return self._defined - 1

    def text(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self.define(encoding.string(text))
        return number

    # ---- writing ----

    def meta(self, members: Dict[str, Any]) -> None:
        """Holds for what is recorded from here on, by any thread."""
        now = time.monotonic_ns()
        with self._lock:
            self._marks.append((now, dict(members)))
            if now - self._written >= PATIENCE:
                self.flush()

    def flush(self, last: bool = False) -> None:
        with self._lock:
            self._cut()
            self._written = time.monotonic_ns()
            self._write(last)

    def _cut(self) -> None:
        """Rows to blocks."""
        cut = []
        for thread, rows in self._threads:
            if len(rows):
                cut.append((thread, rows.cut()))
        # After the cut: whoever appended a row had defined all that it refers to.
        if self._pending:
            self._block(DEFINITIONS, self._first, bytes(self._pending))
            self._pending.clear()
            self._first = self._defined
        for since, members in self._marks:
            self._block(META, since, encoding.plain(members))
        self._marks.clear()
        for thread, rows in cut:
            codes = set(memoryview(rows).cast("q")[::4])
            if not codes <= self._known:
                self._introduce(codes)
            self._block(ROWS, thread, rows)

    def _introduce(self, codes: set) -> None:
        new = {code >> 3 for code in codes - self._known if code & 7 <= EXCEPTION}
        self._known |= codes
        self._block(FUNCTIONS, 0, b"".join(map(self._described, sorted(new))))

    def _described(self, number: int) -> bytes:
        name, bound, source = self.functions[number]
        try:
            return encoding.plain([number, name, bound, signatures.parameters_of(source)])
        except TypeError:  # a default that JSON cannot hold
            return encoding.plain([number, name, bound, None])

    def _block(self, kind: int, thread: int, data: bytes) -> None:
        self._blocks += _BLOCK.pack(_MAGIC, kind, len(data), zlib.crc32(data), thread)
        self._blocks += data

    def _write(self, last: bool) -> None:
        """Whole blocks, so that whoever reads meanwhile has all but the last one."""
        if self._closed:
            self._blocks.clear()
        elif self._file is None:
            if self._blocks or last:
                self._open(last)
        else:
            self._put(self._blocks)
            self._blocks = bytearray()

    def _put(self, data: Any) -> None:
        try:
            written = os.write(self._file, data)  # type: ignore[arg-type]
            while written < len(data):
                data = bytes(data[written:])
                written = os.write(self._file, data)  # type: ignore[arg-type]
        except OSError as error:  # a full disk
            self._closed = True
            os.write(2, f"ttrace: recording of events ends here: {error}\n".encode())

    def close(self) -> None:
        with self._lock:
            self.flush(last=True)
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _open(self, last: bool) -> None:
        last = last or len(self._blocks) > BACKLOG
        opened = self._open_file(last)
        if opened is None:
            self._closed = last
            return
        self._file, described = opened
        waiting, self._blocks = self._blocks, bytearray(HEADER)
        self._block(PROCESS, 0, encoding.plain(described))
        self._put(self._blocks + waiting)
        self._blocks = bytearray()

    def after_fork(self) -> None:
        """In the child: what is in memory is the parent's, and so is the file."""
        self._lock = threading.RLock()
        self._file = None
        self._blocks = bytearray()
        self._pending.clear()
        self._marks.clear()
        self._defined = self._first = 0
        self._numbers = {}
        self._known = set()
        own = self.local.rows
        for _, rows in self._threads:
            rows.cut()
        self._threads = [] if own is None else [(threading.get_ident(), own)]
