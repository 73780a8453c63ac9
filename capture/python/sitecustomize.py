# SPDX-License-Identifier: Apache-2.0
"""Found through PYTHONPATH, runs in every Python that the traced command starts.

Only one sitecustomize can be found, so the one that this file hides is run first, unchanged. Then
the agent waits for torch; a Python that never imports torch pays a few milliseconds.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_the_hidden_one() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # it must see itself under its own name
    spec.loader.exec_module(module)


try:
    import ttrace_agent.arming

    ttrace_agent.arming.arm()
except Exception as error:  # capture must never stop the program
    print(f"ttrace: nothing is captured: {error!r}", file=sys.stderr)
_run_the_hidden_one()
