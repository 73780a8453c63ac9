# SPDX-License-Identifier: Apache-2.0
"""What Megatron-Core needs from a machine without a GPU.

Megatron asks for CUDA in four ways: it calls torch.cuda functions, it writes the device "cuda"
into factory calls and into autocast, and it compares the *names* of tensor types. Each is answered
here with its CPU counterpart. Nothing that computes, communicates or updates is replaced, so a run
is still Megatron's own schedule, data parallelism and optimizer. Call prepare_torch() before the
first import of Megatron and prepare_megatron() after it.
"""

import contextlib
import functools
import os
import warnings

import torch


def prepare_torch() -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # Megatron insists, gloo ignores it
    warnings.filterwarnings("ignore", module="megatron")  # no Apex, no TransformerEngine
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # Importing the compiler costs seconds and compiling for these sizes costs more.
    torch.compile = lambda function=None, **_: function if function else (lambda f: f)
    _stub_cuda()
    for name in ("ones", "tensor", "zeros"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.Tensor.type = _typed_as_cuda(torch.Tensor.type)


def _stub_cuda() -> None:
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"  # always used as device=...
    cuda.synchronize = lambda *_, **__: None
    cuda.manual_seed = lambda *_, **__: None
    # Megatron saves and restores the state of the GPU's generator around dropout and recompute.
    # Nothing draws from it here: every random number comes from the CPU's generator.
    cuda.get_rng_state = lambda *_, **__: torch.zeros(0, dtype=torch.uint8)
    # The dispatcher of experts' tokens copies sizes on a stream of its own. Here all is one stream.
    only = _Stream()
    cuda.Stream = cuda.current_stream = lambda *_, **__: only
    cuda.stream = lambda *_, **__: contextlib.nullcontext()


class _Stream:
    """Of a machine that does everything in order: its events have happened when they are asked."""

    def wait_stream(self, _) -> None:
        pass

    def record_event(self) -> "_Stream":
        return self

    def synchronize(self) -> None:
        pass


def _on_cpu(factory):
    @functools.wraps(factory)
    def create(*args, **kwargs):
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return create


def _typed_as_cuda(tensor_type):
    """Optimizers and clipping accept a parameter when its type() is 'torch.cuda.FloatTensor'."""

    @functools.wraps(tensor_type)
    def name_or_cast(tensor, *args, **kwargs):
        result = tensor_type(tensor, *args, **kwargs)
        if isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result

    return name_or_cast


def prepare_double() -> None:
    """Runs in fp64: Megatron casts logits to float and knows no optimizer of doubles."""
    torch.Tensor.float = torch.Tensor.double
    named = torch.Tensor.type

    @functools.wraps(named)
    def name_or_cast(tensor, *args, **kwargs):
        result = named(tensor, *args, **kwargs)
        return result.replace("Double", "Float") if isinstance(result, str) else result

    torch.Tensor.type = name_or_cast


def prepare_autocast() -> None:
    """Megatron asks for that of CUDA, and so does what carries it into its backward passes."""
    mode = torch.amp.autocast_mode
    for owner, name in ((torch, "autocast"), (mode, "autocast"), (torch, "is_autocast_enabled"),
                        (torch, "get_autocast_dtype")):
        setattr(owner, name, _asked_of_cpu(getattr(owner, name)))


def _asked_of_cpu(function):
    @functools.wraps(function)
    def ask(*args, **kwargs):
        if "device_type" in kwargs:
            kwargs["device_type"] = "cpu"
        return function(*("cpu" if word == "cuda" else word for word in args), **kwargs)

    return ask


def prepare_megatron() -> None:
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import module
    from megatron.core.transformer.moe import moe_utils, token_dispatcher
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    # isinstance() with torch.cuda.FloatTensor raises where CUDA is not compiled in.
    module._FLOAT_TYPES = (torch.FloatTensor,)
    module._HALF_TYPES = (torch.HalfTensor,)
    module._BF16_TYPES = (torch.BFloat16Tensor,)
    random._get_cuda_rng_state = lambda *_, **__: torch.cuda.get_rng_state()
    random._set_cuda_rng_state = lambda *_, **__: None
    WrappedTorchNorm.__new__ = staticmethod(_norm)
    # The MoE router names this function of TransformerEngine even where it is not installed.
    moe_utils.te_general_gemm = None
    token_dispatcher.maybe_move_tensor_to_cpu = _already_on_cpu


def _already_on_cpu(tensor, as_numpy: bool = False, **_):
    """Sizes of pieces, which gloo takes as numbers only."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def _norm(_, config, hidden_size: int, eps: float = 1e-5, **__) -> torch.nn.Module:
    """Torch's norms with Megatron's mark, which makes them right under sequence parallelism.

    There each rank's gradient is a partial sum; finalize_model_grads adds up those of marked
    parameters. Megatron's own wrapper sets no mark, so it refuses; Apex's and
    TransformerEngine's norms do what this one does.
    """
    kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
    norm = kind(hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    return norm
