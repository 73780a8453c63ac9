# SPDX-License-Identifier: Apache-2.0
"""forked.py RANKS PROGRAM ARGUMENTS...: runs PROGRAM's main() in RANKS forked processes.

The program is imported once, before the fork, as torch.multiprocessing's "fork" does it: a run of
two ranks then takes a third of torchrun's time, most of which is spent importing torch. Nothing of
the program but its imports may depend on the rank.
"""
import importlib.util
import os
import pathlib
import signal
import socket
import sys


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def load(path):
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait_for(children):
    """The exit code of the first that fails, which ends the others; otherwise 0."""
    failure = 0
    while children:
        child, status = os.wait()
        children.remove(child)
        if status != 0 and failure == 0:
            failure = os.waitstatus_to_exitcode(status)
            for other in children:
                os.kill(other, signal.SIGTERM)
    return failure


def main():
    ranks, path = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    sys.argv[:] = sys.argv[2:]
    program = load(path)
    os.environ.update(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            program.main()
            return 0
        children.append(child)
    return wait_for(children)


sys.exit(main())
