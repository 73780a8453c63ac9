# SPDX-License-Identifier: Apache-2.0
"""Functions that record a call of another one.

They read nothing but their closures, so that they can have the globals of the function that they
stand for: TorchScript and others look names up there. Dynamo and TorchScript are told to look
through them (`_torchdynamo_inline`, `__prepare_scriptable__`), so compiled code has none of them.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import types
from typing import Any, Callable, List

from . import native
from .stream import EXCEPTION, POST, PRE, ROWS_KEPT, Stream
from .values import Values, name_of

ORIGINAL = "_ttrace_original"
# Of the wrappers' code: warnings.warn(stacklevel=2) skips frames of such files (both words count),
# so that a warning names the line of the program. Dynamo goes by the folder.
_INTERNAL = os.path.join(os.path.dirname(__file__), "importlib_bootstrap.py")
_OF_OBJECTS = ("torch.optim", "torch.amp", "torch.utils.data")
_IN_TABLES = ("torch.compiler", "torch.distributed.distributed_c10d")


def original(function: Any) -> Any:
    """What a wrapper stands for; anything else itself."""
    try:
        return vars(function).get(ORIGINAL, function)
    except TypeError:
        return function


def dress(wrapper: Any, function: Any) -> Any:
    """Makes it look like `function` to everybody who asks."""
    if isinstance(function, types.FunctionType):
        code = wrapper.__code__.replace(co_filename=_INTERNAL)
        wrapper = types.FunctionType(code, function.__globals__, function.__name__, None,
                                     wrapper.__closure__)
        # Of no use to code that takes anything; Dynamo looks for them here.
        wrapper.__defaults__, wrapper.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    functools.update_wrapper(wrapper, function)
    innermost = original(function)
    setattr(wrapper, ORIGINAL, innermost)
    # Dynamo asks bound methods, too, and then forgets what they are bound to; it knows modules.
    module = getattr(innermost, "__module__", None) or ""
    if not _known_to_dynamo(innermost) and not module.startswith(_OF_OBJECTS):
        wrapper._torchdynamo_inline = innermost
    wrapper.__prepare_scriptable__ = lambda: innermost
    return wrapper


def _known_to_dynamo(function: Any) -> bool:
    """Whether Dynamo has tables of it by identity. They are filled when Dynamo is imported, later
    than this as a rule, and so hold the wrapper: it is what must be met in the code, too."""
    if "torch._dynamo" in sys.modules:
        return False
    module = getattr(function, "__module__", None) or ""
    return isinstance(function, types.BuiltinFunctionType) or module.startswith(_IN_TABLES)


def parameters_of(function: Any) -> List[str]:
    """Names of what is passed by position, as inspect.signature would have them."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return list(code.co_varnames[:code.co_argcount]) if code is not None else []


def is_bound(function: Any) -> bool:
    return parameters_of(function)[:1] == ["self"]


def recorder(function: Callable[..., Any], stream: Stream, values: Values, arguments: bool = True,
             results: bool = True, wants: Any = None) -> Any:
    """A wrapper that records each call; `wants(name)`: of the arguments only these."""
    bound = is_bound(function)
    number = stream.function(name_of(function), bound, function)
    describe: Any = values.arguments if arguments else None
    if arguments and wants is not None:
        names = parameters_of(function)
        describe = values.chosen([wants(name) for name in names], wants) if names else describe
    call = native.Recorder(function, stream.local, describe, values.result if results else None,
                           _failure(stream, number << 3 | EXCEPTION), stream.flush,
                           number << 3 | PRE, number << 3 | POST, ROWS_KEPT, bound).call

    def recorded(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return dress(recorded, function)


def _failure(stream: Stream, code: int) -> Callable[[Any, BaseException], None]:
    def failed(rows: Any, error: BaseException) -> None:
        try:
            text = f"{name_of(type(error))}\n{str(error)[:1000]}"
        except Exception:  # an exception that cannot be printed
            text = f"{name_of(type(error))}\n"
        rows.append(code, time.monotonic_ns(), stream.text(text), 0)

    return failed
