"""Conditions under which a fast version may run in the place of plain PyTorch.

The only place that asks "may I be fast?". The transforms of torch.func (vmap, grad, jvp and what is built from them),
forward-mode derivatives and batched gradients have rules for neither fused kernels nor custom operators; plain PyTorch
serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad

from attent.ops import native

# Input features that the processor's matrix tiles take must be a multiple of this.
AMX_WIDTH = 32
TRITON_INSTALLED = find_spec("triton") is not None


def is_transformed() -> bool:
    """Return whether a transform of torch.func is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def is_vmap_alone() -> bool:
    """Return whether vmap is active, at any depth, and no other transform."""
    levels = torch._C._functorch.get_interpreter_stack() or []  # pyright: ignore[reportAttributeAccessIssue]
    vmap = torch._C._functorch.TransformType.Vmap  # pyright: ignore[reportAttributeAccessIssue]
    return bool(levels) and all(level.key() == vmap for level in levels) and forward_ad._current_level < 0  # pyright: ignore[reportPrivateUsage]


def needs_plain_torch(*gradients: Tensor | None) -> bool:
    """Return whether only plain PyTorch can serve.

    Under a transform of torch.func, in forward mode, or for batched gradients.

    Args:
        gradients: in a backward, its incoming gradients; they may be batched (`is_grads_batched`) even if the forward
            was not transformed.
    """
    if is_transformed() or forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        return True
    is_batched = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]
    return any(gradient is not None and is_batched(gradient) for gradient in gradients)


def is_autocast(device: torch.device) -> bool:
    """Return whether autocast is on for a type of device; it never is for one without autocast, such as meta."""
    # PyTorch 2.11 cannot compile the question whether a type has autocast, which these two have
    has_autocast = device.type in ("cpu", "cuda") or torch.amp.is_autocast_available(device.type)
    return has_autocast and torch.is_autocast_enabled(device.type)


def autocast_dtype(like: Tensor) -> torch.dtype:
    """Return the type in which products with a tensor are computed: autocast's, or its own."""
    return torch.get_autocast_dtype(like.device.type) if is_autocast(like.device) else like.dtype


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context with autocast off, which would round scores to 16 bits."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def can_run_custom_function() -> bool:
    """Return whether an `autograd.Function` without rules for transforms may run.

    No compiler, transform or forward-mode derivatives.
    """
    return not (torch.compiler.is_compiling() or needs_plain_torch())


def can_run_native(
    *tensors: Tensor,
    dtypes: Collection[torch.dtype] = (torch.float32,),
    in_training: bool = False,
    in_inference: bool = False,
) -> bool:
    """Return whether the compiled library may compute with these tensors.

    It must be installed, the tensors must lie on the CPU in one of these types, and nothing may have to see the
    computation: no compiler, tracer, dispatch mode, transform or forward-mode derivatives.

    Args:
        tensors: those that it would read.
        dtypes: the types that it takes.
        in_training: whether gradients must be recorded, no tensor be empty, and autocast be off or in one of the types.
        in_inference: whether inference mode must be on, and autocast off.
    """
    if not can_run_custom_function() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return False
    if torch._C._len_torch_dispatch_stack() or native.library() is None:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    if in_training:
        if not torch.is_grad_enabled() or not all(tensor.numel() for tensor in tensors):
            return False
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") not in dtypes:
            return False
    if in_inference and (not torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu")):
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype in dtypes for tensor in tensors)


def library_problem() -> tuple[str | None, bool]:
    """Return why the compiled library cannot be used, None if it can, and whether it was compiled at all."""
    file = native.library_file()
    if file is None:
        return "it was not compiled", False
    try:
        native.load(file)
    except OSError as error:
        return str(error), True
    return None, True


def processor_class() -> str:
    """Return the class of this processor, as the compiled library uses it: "amx", "avx512", "avx2" or "baseline"."""
    return "amx" if native.has_amx() else ("baseline", "avx2", "avx512")[native.simd_level()]


def can_use_amx(features: Tensor, *parameters: Tensor | None) -> bool:
    """Return whether the processor's matrix tiles (AMX) may multiply features by contiguous float32 parameters."""
    if (
        not native.has_amx()
        or features.shape[-1] % AMX_WIDTH
        or not can_run_native(features, dtypes=(torch.float32, torch.bfloat16))
    ):
        return False
    return all(
        parameter is None or (can_run_native(parameter) and parameter.is_contiguous()) for parameter in parameters
    )


def can_run_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the Triton kernels run on a device in a type."""
    return TRITON_INSTALLED and device.type == "cuda" and dtype != torch.float64


def is_known_true(condition: Callable[[], Tensor], device: torch.device) -> bool:
    """Return whether a condition holds, where that is cheap to read: on a CPU, outside compiled graphs and transforms.

    Elsewhere return False; the caller then does the work that the condition would have spared.
    """
    if device.type != "cpu" or not _is_eager():
        return False
    answer = condition()
    return not isinstance(answer, FakeTensor) and bool(answer)


def is_readable(tensor: Tensor) -> bool:
    """Return whether the numbers of a tensor can be read now; those of fake and meta tensors cannot."""
    return _is_eager() and not (tensor.is_meta or isinstance(tensor, FakeTensor))


def _is_eager() -> bool:
    """Return whether no compiler, transform or `make_fx` is active."""
    if torch.compiler.is_compiling() or is_transformed():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is None  # pyright: ignore[reportAttributeAccessIssue]
