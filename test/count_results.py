# SPDX-License-Identifier: Apache-2.0
"""Prints "N passed, N failed[, N skipped]" from Meson's test logs (one JSON object a line a test).

Exits 1 when anything failed or nothing ran: a log that is missing or empty is a failure, because a
build that broke must never look like a green run. Runs that hung and were repeated (limited.py) are
printed, too.
"""
import json
import sys
from pathlib import Path


def main(paths: list[str]) -> int:
    passed = failed = skipped = 0
    for path in map(Path, paths):
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines:
            print(f"no test ran: {path}: the log is missing or empty")
            failed += 1
        for line in lines:
            test = json.loads(line)
            if test["result"] in ("OK", "EXPECTEDFAIL"):
                passed += 1
            elif test["result"] == "SKIP":
                skipped += 1
                print(f"skipped: {test['name']}")
            else:
                failed += 1
                print(f"failed: {test['name']} ({test['result']}, exit {test['returncode']})")
        hung = path.with_name("hung.txt")
        if hung.exists():
            print(f"hung once, and were run again:\n{hung.read_text()}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
