# SPDX-License-Identifier: Apache-2.0
"""subprocess.run for tests whose programs start others: a run that hangs must say where.

When the time is up, every process below this one is listed and aborted (Pythons print their stacks
then, if PYTHONFAULTHANDLER is set), so that the pipes close and the test fails with that text
instead of waiting for grandchildren until somebody kills it.
"""
import os
import pathlib
import signal
import subprocess
import time


class Overdue(AssertionError):
    """The command did not end in time; says what each process did."""


def _parents():
    """{process: its parent} of all that live."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parents[int(folder.name)] = int(fields[1])
    return parents


def below(ancestor):
    """The processes that `ancestor` started, and theirs, the oldest first."""
    parents, found = _parents(), [ancestor]
    for process in found:
        found.extend(child for child, parent in parents.items() if parent == process)
    return found[1:]


def _describe(process):
    folder = pathlib.Path(f"/proc/{process}")
    try:
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        waits = (folder / "wchan").read_text()
    except OSError:
        return f"{process}: ended"
    return (f"{process} (parent {status['PPid'].strip()}, {status['State'].strip()}, "
            f"{status['Threads'].strip()} threads, in {waits or '?'}): {words.strip()[:200]}")


def _signal(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def run(command, seconds, **how):
    """subprocess.run(command, capture_output=True, text=True, **how); Overdue after `seconds`."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **how) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
            return subprocess.CompletedProcess(words, process.returncode, output, errors)
        except subprocess.TimeoutExpired:
            started = below(os.getpid())
            listed = "\n".join(map(_describe, started))
            _signal(started, signal.SIGABRT)
            time.sleep(3)  # for the stacks to be written
            _signal(started + below(os.getpid()), signal.SIGKILL)
            output, errors = process.communicate()
    raise Overdue(f"{' '.join(words)}\nhas not ended after {seconds} s; running were\n{listed}\n"
                  f"--- stdout\n{output[-4000:]}\n--- stderr\n{errors[-12000:]}")
