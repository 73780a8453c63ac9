# SPDX-License-Identifier: Apache-2.0
"""Global module hooks: what goes into and comes out of every module of a training forward pass.

PyTorch gives its global pre-hooks no keyword arguments, although its own frame has them: for
modules that are called with keywords they are read from there, before the module can change them.
Values are copied inside the hooks, because later operations may work in place.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Set, Tuple

from . import abi, adapters, calls
from .calls import FORWARD, RECOMPUTE, Frame
from .names import ModuleInfo
from .structures import Finder, Found


class ModuleHooks:
    def __init__(self, agent: Any, torch: Any):
        self._agent = agent
        self._torch = torch
        self.stack = calls.Stack()
        self._finder = Finder(torch)
        self._graph_task = torch._C._current_graph_task_id
        self._everything = agent.options.what == "all"
        self._inexact = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
                         and (dtype.is_floating_point or dtype.is_complex)}
        self._taken: Set[Tuple[str, str, int, int]] = set()
        self._left_out: Set[int] = set()  # addresses of inputs that another chunk has recorded
        self._glue: Dict[str, int] = {}  # of the call that is being entered: slot, its record
        self._overwriter: Optional[Any] = None
        self._handles: list = []
        self._depth = 2  # frames from _enter to the one of _call_impl that calls hooks

    # ---- installation ----

    def overwrite_with(self, overwriter: Any) -> None:
        self._overwriter = overwriter

    def install(self) -> None:
        if self._handles:
            return
        module, agent = self._torch.nn.modules.module, self._agent
        is_compiling = self._torch.compiler.is_compiling
        enter, leave = self._enter, self._leave
        if agent.collectives is not None:
            enter, leave = map(agent.collectives.around, (enter, leave))
            self._depth = 3

        def pre_hook(module: Any, args: Any) -> Any:
            if not is_compiling() and agent.awake:
                try:
                    return enter(module, args)
                except Exception as error:
                    agent.failed(type(module).__name__, error)
                    self._mute(module)
            return None

        def hook(module: Any, args: Any, *rest: Any) -> Any:
            # (kwargs, output), or only a meaningless result when the module raised an exception.
            if not is_compiling() and self.stack.frames:
                try:
                    return leave(module, args, *rest)
                except Exception as error:
                    agent.failed(type(module).__name__, error)
            return None

        try:
            post = module.register_module_forward_hook(hook, with_kwargs=True, always_call=True)
        except TypeError:  # an older torch; exceptions then leave frames, which _leave drops
            post = module.register_module_forward_hook(
                lambda module, args, output: hook(module, args, {}, output))
        self._handles = [module.register_module_forward_pre_hook(pre_hook), post]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def begin_iteration(self) -> None:
        self._taken = set()
        self._left_out = set()
        self.stack.latest = None

    def _mute(self, module: Any) -> None:
        """A call that could not be entered hides those inside it, they would look like roots."""
        frames = self.stack.frames
        if not frames or frames[-1].module is not module:
            frames.append(Frame(module))

    def between_calls(self) -> None:
        """No module runs in this thread now: drops what an interrupt may have left."""
        self.stack.frames.clear()

    # ---- entering a call ----

    def _enter(self, module: Any, args: Tuple[Any, ...]) -> Any:
        """The arguments to call it with instead; None: these."""
        frames = self.stack.frames
        parent = frames[-1] if frames else None
        if parent is not None and parent.info is None:
            return None
        info = self._agent.names.find(module)
        task = self._graph_task()
        if parent is None and task == -1:
            info, context = self._root_call(module, info)
        elif info is None and parent is not None and not adapters.is_generated(module):
            info = self._agent.names.late(module, parent.info, self._agent.steps.iteration)
        if info is None:
            if self._agent.awake:
                frames.append(Frame(module))
            return None
        keywords = None
        if info.keywords is not False:
            keywords = sys._getframe(self._depth).f_locals.get("kwargs")
        address = _address(args, keywords)
        if task != -1:
            frame = calls.enter_recompute(module, info, parent, self.stack.latest, address, task)
        else:
            context = context if parent is None else parent.context
            frame = calls.enter(module, info, context, parent, address)
        frames.append(frame or Frame(module))
        if frame is None:
            return None
        info.calls += frame.phase == FORWARD
        return self._inputs(frame, parent, args, keywords)

    def _root_call(self, module: Any, info: Optional[ModuleInfo]) -> Tuple[Any, Any]:
        """(info, context) of a call to record, (None, None) of another."""
        agent, steps = self._agent, self._agent.steps
        has_parameters = next(module.parameters(), None) is not None
        if not self._is_training(module, has_parameters) or not (has_parameters or steps.running):
            return None, None
        if not has_parameters and adapters.is_generated(module):
            return None, None
        root = info.root if info is not None else agent.names.discover(module)
        if has_parameters:
            agent.initialise(root)
            steps.before_forward(root)
        if not steps.recording:
            return None, None
        steps.record_values(root)
        info = agent.names.find(module)
        if root.parameters and (info.at_root or root.context is None):
            root.context = agent.latest_context = calls.Context(root.microbatches)
            root.microbatches += 1
        # A loss, or a part of the model that is called alone, belongs to the latest micro-batch.
        context = root.context or agent.latest_context
        return (info, context) if context is not None else (None, None)

    def _is_training(self, module: Any, has_parameters: bool) -> bool:
        if self._agent.paused or getattr(module, "_is_replica", False):
            return False
        if not self._torch.is_grad_enabled() or self._torch.jit.is_tracing():
            return False
        if not module.training and has_parameters and self._agent.steps.iteration < 0:
            self._agent.note("evaluation", type(module).__name__,
                             "called after eval() although gradients are enabled: not recorded")
        return module.training

    # ---- leaving it ----

    def _leave(self, module: Any, args: Any, *rest: Any) -> Any:
        """What to return instead; None: what it returned."""
        frames = self.stack.frames
        frame = frames[-1]
        if frame.module is not module:
            if frame.info is None or all(other.module is not module for other in frames):
                return None
            while frames[-1].module is not module:  # left by an exception that no hook saw
                frames.pop()
            frame = frames[-1]
        frames.pop()
        frame.module = None  # the log must not keep it
        if frame.info is None:
            return None
        if frame.phase == RECOMPUTE and (not frames or frames[-1].phase != RECOMPUTE):
            self.stack.latest = frame.cursor
        if len(rest) != 2:
            return None
        return self._outputs(frame, frames[-1] if frames else None, *rest)

    # ---- inputs ----

    def _inputs(self, frame: Frame, parent: Optional[Frame], args: Tuple[Any, ...],
                keywords: Any) -> Optional[Tuple[Any, ...]]:
        info = frame.info
        done = _is_shell(parent, info) and parent.inputs_done
        frame.inputs_done = done or not info.wraps
        frame.keywords_done = done or info.wraps or isinstance(keywords, dict)
        if done or info.wraps:
            return None
        new: Dict[str, Any] = {}
        if args:
            new = self._each_input(frame, self._finder.positional(args))
        if keywords:
            changed = self._each_input(frame, self._finder.keywords(keywords))
            if changed:  # the very dictionary that the module is called with
                keywords.update(self._finder.replace(dict(keywords), "input", changed))
        return self._finder.replace(args, "input", new) if new else None

    def _each_input(self, frame: Frame, found: Found) -> Dict[str, Any]:
        """Those to pass on instead of the ones found."""
        self._glue = {}
        if self._wants(frame.phase):
            self._record_inputs(frame, found)
        new = {}
        for slot, tensor in found:
            sequence = self._glue.pop(slot, None) if frame.phase == FORWARD else abi.NOT_ALIAS
            if sequence is None or (frame.info.name, frame.call, slot) not in frame.context.glue:
                continue
            other = self._glued(frame, slot, tensor, sequence)
            if other is not None:
                new[slot] = other
        return new

    def _glued(self, frame: Frame, slot: str, tensor: Any, sequence: int) -> Any:
        """What no module returned has a gradient that no output's hook sees."""
        if self._overwriter is not None:
            return self._overwriter.glue(frame, slot, tensor, sequence)
        self.watch(frame, slot, tensor)
        return None

    def watch(self, frame: Frame, slot: str, tensor: Any, replacement: Any = None) -> None:
        """Records the gradient of a tensor of this call when it arrives, if it requires one."""
        # Without gradients, in a checkpoint's first pass, only inputs handed through require one.
        if tensor.requires_grad and self._torch.is_grad_enabled():
            self._agent.gradients.watch(tensor, frame.info, f"grad_{slot}",
                                        frame.context.microbatch, frame.call, replacement)

    def _wants(self, phase: str) -> bool:
        return phase == FORWARD or self._everything

    def _record_inputs(self, frame: Frame, found: Found) -> None:
        info, recorder = frame.info, self._agent.recorder
        for slot, tensor in found:
            exact = tensor.dtype not in self._inexact
            at_root = info.at_root and frame.phase == FORWARD
            known = recorder.sequence_of(tensor)
            if not at_root and known < 0 and exact and not self._everything:
                if not self._left_out or tensor.data_ptr() not in self._left_out:
                    continue  # masks and indices made between modules
            if not self._is_first(frame, slot):
                if at_root and exact and known < 0:
                    self._left_out.add(tensor.data_ptr())  # its first use inside shows it
                continue
            flags = abi.ROOT_INPUT if at_root else abi.GLUE if known < 0 else 0
            sequence = recorder.write(
                frame.phase, info.name, slot, tensor, microbatch=frame.context.microbatch,
                call=frame.call, flags=flags, raw_name=info.raw_name, alias_of=known,
                always=at_root and exact)
            if flags == abi.GLUE and not exact and frame.phase == FORWARD:
                frame.context.glue.add((info.name, frame.call, slot))
                self._glue[slot] = sequence

    def _is_first(self, frame: Frame, slot: str) -> bool:
        """Chunks of one model on this rank have modules in common; the first one's is recorded."""
        if frame.phase != FORWARD or frame.info.numbered:
            return True
        key = (frame.info.name, slot, frame.context.microbatch, frame.call)
        if self._agent.names.chunked and key in self._taken:
            return False
        self._taken.add(key)
        return True

    # ---- outputs ----

    def _outputs(self, frame: Frame, parent: Optional[Frame], kwargs: Any, output: Any) -> Any:
        info = frame.info
        if info.keywords is None or (kwargs and not info.keywords):
            info.keywords = bool(kwargs)
        if kwargs and not frame.keywords_done and self._wants(frame.phase):
            self._record_inputs(frame, self._finder.keywords(kwargs))
        found = self._finder.outputs(output)
        info.returned_tensor = info.returned_tensor or bool(found)
        if _is_shell(parent, info):
            parent.outputs_done = True
        if frame.outputs_done or info.passes_on:
            return None
        new = {}
        for slot, tensor in found:
            other = self._output(frame, slot, tensor)
            if other is not None:
                new[slot] = other
        if not new:
            return None
        if isinstance(output, self._torch.Tensor):
            return new["output.0"]
        return self._finder.replace(output, "output", new)

    def _output(self, frame: Frame, slot: str, tensor: Any) -> Any:
        """The tensor to return instead; None: this one."""
        info, context = frame.info, frame.context
        if not self._is_first(frame, slot):
            return None
        sequence = abi.NOT_ALIAS
        if self._wants(frame.phase):
            sequence = self._agent.recorder.write(
                frame.phase, info.name, slot, tensor, microbatch=context.microbatch,
                call=frame.call, raw_name=info.raw_name)
        if self._overwriter is not None:
            return self._overwriter.output(frame, slot, tensor, sequence)
        self.watch(frame, slot, tensor)
        return None

    def inner_output(self, module: Any, slot: str, tensor: Any) -> Any:
        """What a running call goes on with in place of a tensor that only its code sees.

        Decisions are made of such tensors (a router picks experts by its logits): a replay must
        make them of the other run's.
        """
        frames = self.stack.frames
        frame = frames[-1] if frames else None
        if frame is None or frame.module is not module or frame.info is None:
            return tensor
        try:
            other = self._output(frame, slot, tensor)
        except Exception as error:
            self._agent.failed(frame.info.name, error)
            other = None
        return tensor if other is None else other

    def record_named(self, name: str, value: Any) -> None:
        """ttrace_agent.record()"""
        agent = self._agent
        if not (agent.steps.recording and agent.steps.running) or agent.latest_context is None:
            return
        context = agent.latest_context
        call = context.next_call(name)
        for slot, tensor in self._finder.outputs(value):
            agent.recorder.write(FORWARD, name, slot, tensor, microbatch=context.microbatch,
                                 call=call)


def _is_shell(frame: Optional[Frame], inner: ModuleInfo) -> bool:
    """Whether the call `frame` is of a wrapper around `inner`."""
    return (inner.nested and frame is not None and frame.info is not None
            and frame.info.name == inner.name)


def _address(args: Tuple[Any, ...], keywords: Any) -> int:
    """Of the first input: enough to tell calls apart whose inputs a checkpoint keeps."""
    first = args[0] if args else next(iter(keywords.values()), None) if keywords else None
    try:
        return first.data_ptr()
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0
