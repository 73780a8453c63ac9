# SPDX-License-Identifier: Apache-2.0
"""subprocess.run for tests whose programs start others: a run that hangs must say where.

When the time is up, every process that takes part is listed and aborted (Pythons print their stacks
then, if PYTHONFAULTHANDLER is set), so that the pipes close and the test fails with that text
instead of waiting for grandchildren until somebody kills it. A run that may be repeated is, once:
the launcher or gloo may be what hung. It is kept for the summary of the tests all the same, so that
nobody takes it for a run without trouble.
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


def started_by(command):
    """`command`'s process and all below this one but its other children: a server stays."""
    parents, found = _parents(), [os.getpid()]
    for process in found:
        found.extend(child for child, parent in parents.items() if parent == process)
    return [process for process in found[1:]
            if process == command or parents[process] != os.getpid()]


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


def _keep(trouble):
    """Adds to the file that count_results.py prints."""
    logs = pathlib.Path(os.environ["TTRACE_BUILD"]) / "meson-logs"
    logs.mkdir(exist_ok=True)
    with open(logs / "hung.txt", "a") as file:
        file.write(f"{trouble}\n")


def run_again_if_it_hangs(command, seconds, clear, **how):
    """run(), and once more after clear() when it was overdue."""
    try:
        return run(command, seconds, **how)
    except Overdue as trouble:
        _keep(trouble)
        clear()
    return run(command, seconds, **how)


def run(command, seconds, **how):
    """subprocess.run(command, capture_output=True, text=True, **how); Overdue after `seconds`."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **how) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
            return subprocess.CompletedProcess(words, process.returncode, output, errors)
        except subprocess.TimeoutExpired:
            started = started_by(process.pid)
            listed = "\n".join(map(_describe, started))
            _signal(started, signal.SIGABRT)
            time.sleep(3)  # for the stacks to be written
            _signal(started + started_by(process.pid), signal.SIGKILL)
            output, errors = process.communicate()
    raise Overdue(f"{' '.join(words)}\nhas not ended after {seconds} s; running were\n{listed}\n"
                  f"--- stdout\n{output[-4000:]}\n--- stderr\n{errors[-12000:]}")
