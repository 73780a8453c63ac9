# SPDX-License-Identifier: Apache-2.0
"""`python -m ttrace_agent [-m MODULE | SCRIPT] ...` traces a program without sitecustomize.

`python -I`, `-E` and launchers that clean the environment never find it. Naming this package's
folder works there too: `python -I .../ttrace_agent train.py`.
"""

import os
import runpy
import sys

if not __package__:  # started by path: only this folder is on sys.path
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    sys.path.insert(0, os.path.dirname(folder))

from ttrace_agent import arming  # noqa: E402


def main() -> None:
    words = sys.argv[1:]
    if not words or (words[0] == "-m" and len(words) == 1):
        sys.exit("usage: python -m ttrace_agent [-m MODULE | SCRIPT] [ARGUMENTS]")
    arming.arm()
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0:0] = [os.getcwd()]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path[0:0] = [os.path.dirname(os.path.abspath(words[0]))]
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
