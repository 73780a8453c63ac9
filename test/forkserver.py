# SPDX-License-Identifier: Apache-2.0
"""Programs in processes that have torch and Megatron imported already; importing takes longer than
most tests.

    forkserver.py serve SOCKET               imports, then forks a process for each request
    forkserver.py run SOCKET PROGRAM ARGS... stands in for `python3 PROGRAM ARGS...`

`Server` is for tests: it starts the first form and has the words of the second. `run` hands its environment, working directory, arguments and standard streams over and ends with
the program's exit code. The new process arms the agent as sitecustomize does when a Python starts,
and only then runs the program, in which nothing of this file is left but the imported modules.
"""
import json
import os
import socket
import sys


class Server:
    """A serving process, started when it is first wanted and stopped at exit."""

    def __init__(self):
        self._socket = ""

    def command(self):
        """What to write for `python3` in a command."""
        if not self._socket:
            self._start()
        return [sys.executable, "-S", "-E", os.path.abspath(__file__), "run", self._socket]

    def _start(self):
        import atexit
        import subprocess
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="ttrace-fork-")
        self._socket = os.path.join(folder.name, "socket")
        process = subprocess.Popen(
            [sys.executable, __file__, "serve", self._socket], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"})
        process.stdout.readline()

        def stop():
            process.kill()
            process.wait()
            process.stdout.close()
            folder.cleanup()

        atexit.register(stop)


def receive_request(connection):
    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    return json.loads(data), streams


def become(request, streams):
    """Runs the requested program; returns its exit code."""
    import atexit
    import runpy
    import traceback

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = request["arguments"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    code = 0
    try:
        for folder in os.environ.get("PYTHONPATH", "").split(":"):
            if folder and os.path.exists(os.path.join(folder, "sitecustomize.py")):
                sys.path.insert(1, folder)
                runpy.run_path(os.path.join(folder, "sitecustomize.py"))
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def answer(connection):
    """In a process of its own: waits for the program, as it may be killed by a signal."""
    request, streams = receive_request(connection)
    child = os.fork()
    if child == 0:
        connection.close()
        os._exit(become(request, streams))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(json.dumps(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def import_frameworks():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron says what is not installed
        import torch.distributed.fsdp  # noqa: F401
        import torch.distributed.tensor.parallel  # noqa: F401
        import torch._dynamo  # noqa: F401  the first step of an optimizer imports it
        import megatron.core.models.gpt  # noqa: F401
        import megatron.core.optimizer  # noqa: F401
        import megatron.core.pipeline_parallel  # noqa: F401


def serve(path):
    import_frameworks()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(connection)
        connection.close()
        while True:  # those that have ended
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def run(path, arguments):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    return json.loads(connection.recv(64) or "1")


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1] == "serve" else run(sys.argv[2], sys.argv[3:]))
