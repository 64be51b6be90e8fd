"""Conditions under which a fast version can replace plain PyTorch.

All such conditions are decided here. The transforms of torch.func (vmap, grad, jvp and those built on them),
forward-mode derivatives and batched gradients support neither fused kernels nor custom operators, so they run in plain
PyTorch.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad

from attent.ops import native

# The number of input features must be a multiple of this to use the processor's matrix tiles.
AMX_WIDTH = 32
TRITON_INSTALLED = find_spec("triton") is not None
Function = TypeVar("Function", bound=Callable[..., Any])


def constant_in_graphs(function: Function) -> Function:
    """Decorate a function whose result a captured graph may hold as a constant.

    `torch.compiler.assume_constant_result` does the same, but imports the compiler, which takes two seconds.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


@constant_in_graphs
def is_exporting() -> bool:
    """Return whether torch.export captures a graph; PyTorch 2.11 answers True to torch.compile as well."""
    return torch.compiler.is_exporting()


def is_transformed() -> bool:
    """Return whether a transform of torch.func is active."""
    return torch._C._are_functorch_transforms_active()  # pyright: ignore[reportAttributeAccessIssue]


def is_vmap_alone() -> bool:
    """Return whether vmap is active, possibly nested, without any other transform."""
    levels = torch._C._functorch.get_interpreter_stack() or []  # pyright: ignore[reportAttributeAccessIssue]
    vmap = torch._C._functorch.TransformType.Vmap  # pyright: ignore[reportAttributeAccessIssue]
    return bool(levels) and all(level.key() == vmap for level in levels) and forward_ad._current_level < 0  # pyright: ignore[reportPrivateUsage]


def needs_plain_torch(*gradients: Tensor | None) -> bool:
    """Return whether the computation needs plain PyTorch.

    This is so under a transform of torch.func, in forward mode, and for batched gradients.

    Args:
        gradients: the incoming gradients of a backward; they may be batched (`is_grads_batched`) even if the forward
            was not transformed.
    """
    if is_transformed() or forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        return True
    is_batched = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]
    return any(gradient is not None and is_batched(gradient) for gradient in gradients)


def is_autocast(device: torch.device) -> bool:
    """Return whether autocast is on for a device's type; always False for types without autocast, such as meta."""
    # PyTorch 2.11 cannot compile `is_autocast_available`; these two types always support autocast
    has_autocast = device.type in ("cpu", "cuda") or torch.amp.is_autocast_available(device.type)
    return has_autocast and torch.is_autocast_enabled(device.type)


def autocast_dtype(like: Tensor) -> torch.dtype:
    """Return the dtype in which products with a tensor are computed: autocast's, or the tensor's own."""
    return torch.get_autocast_dtype(like.device.type) if is_autocast(like.device) else like.dtype


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context that turns autocast off, so that scores are not rounded to 16 bits."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def can_run_custom_function() -> bool:
    """Return whether an `autograd.Function` without rules for transforms can run.

    This requires that no compiler, transform or forward-mode derivative is active.
    """
    return not (torch.compiler.is_compiling() or needs_plain_torch())


def can_run_operator() -> bool:
    """Return whether the graph that torch.compile captures now may hold our operators.

    An exported graph holds none, and transforms and forward mode do not support them.
    """
    return torch.compiler.is_compiling() and not (is_exporting() or needs_plain_torch())


def can_run_native(
    *tensors: Tensor,
    dtypes: Collection[torch.dtype] = (torch.float32,),
    in_training: bool = False,
    in_inference: bool = False,
) -> bool:
    """Return whether the compiled library can compute with these tensors.

    It must be installed, the tensors must be on the CPU in one of these dtypes, and no compiler, tracer, dispatch mode,
    transform or forward-mode derivative may be active.

    Args:
        tensors: the tensors to read.
        dtypes: the supported dtypes.
        in_training: whether to require that gradients are recorded, no tensor is empty, and autocast is off or uses one
            of the dtypes.
        in_inference: whether to require that inference mode is on and autocast is off.
    """
    if (
        not can_run_custom_function()
        or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        or torch._C._len_torch_dispatch_stack()  # pyright: ignore[reportAttributeAccessIssue]
        or native.library() is None
    ):
        return False
    if in_training:
        is_known_dtype = not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") in dtypes
        if not (torch.is_grad_enabled() and is_known_dtype and all(tensor.numel() for tensor in tensors)):
            return False
    may_infer = not in_inference or (torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu"))
    return may_infer and all(tensor.device.type == "cpu" and tensor.dtype in dtypes for tensor in tensors)


def library_problem() -> tuple[str | None, bool]:
    """Return the reason why the compiled library cannot be used, or None, and whether it was compiled at all."""
    file = native.library_file()
    if file is None:
        return "it was not compiled", False
    try:
        native.load(file)
    except OSError as error:
        return str(error), True
    return None, True


def processor_class() -> str:
    """Return the processor class used by the compiled library: "amx", "avx512", "avx2" or "baseline"."""
    return "amx" if native.has_amx() else ("baseline", "avx2", "avx512")[native.simd_level()]


def can_use_amx(features: Tensor, *parameters: Tensor | None) -> bool:
    """Return whether the processor's matrix tiles (AMX) can multiply features by contiguous float32 parameters."""
    return (
        not torch.compiler.is_compiling()
        and native.has_amx()
        and features.shape[-1] % AMX_WIDTH == 0
        and can_run_native(features, dtypes=(torch.float32, torch.bfloat16))
        and all(
            parameter is None or (can_run_native(parameter) and parameter.is_contiguous()) for parameter in parameters
        )
    )


def can_run_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the Triton kernels support a device and a dtype."""
    return TRITON_INSTALLED and device.type == "cuda" and dtype != torch.float64


def is_known_true(condition: Callable[[], Tensor], device: torch.device) -> bool:
    """Return whether a condition is known to hold; it is read only on a CPU, outside compiled graphs and transforms.

    Elsewhere False is returned, and the caller does the work that the condition would have saved.
    """
    if device.type != "cpu" or not _is_eager():
        return False
    answer = condition()
    return not isinstance(answer, FakeTensor) and bool(answer)


def is_readable(tensor: Tensor) -> bool:
    """Return whether the values of a tensor can be read now; those of fake and meta tensors cannot."""
    return _is_eager() and not (tensor.is_meta or isinstance(tensor, FakeTensor))


def _is_eager() -> bool:
    """Return whether no compiler, transform or `make_fx` is active."""
    if torch.compiler.is_compiling() or is_transformed():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is None  # pyright: ignore[reportAttributeAccessIssue]
