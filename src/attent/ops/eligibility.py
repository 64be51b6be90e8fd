"""What is at work around a call, and with it which computation can serve: compiled code, or plain PyTorch alone.

torch.func's transforms (vmap, grad, jvp and what is made of them), forward mode and batched gradients have rules for neither fused
kernels nor operators of our own; plain PyTorch serves them all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Whether a transform of torch.func is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def is_traced() -> bool:
    """Whether `make_fx` records what runs."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None  # pyright: ignore[reportAttributeAccessIssue]


def is_vmap_alone() -> bool:
    """Whether vmap is at work, at any depth, and no other transform."""
    levels = torch._C._functorch.get_interpreter_stack() or []  # pyright: ignore[reportAttributeAccessIssue]
    vmap = torch._C._functorch.TransformType.Vmap  # pyright: ignore[reportAttributeAccessIssue]
    return bool(levels) and all(level.key() == vmap for level in levels) and forward_ad._current_level < 0  # pyright: ignore[reportPrivateUsage]


def needs_plain_torch(gradient: Tensor | None = None) -> bool:
    """Whether plain PyTorch alone serves what runs now: under a transform of torch.func, or in forward mode.

    Args:
        gradient: in a backward, the one that came; it may be many at once (`is_grads_batched`) though the forward was none of these.
    """
    if is_transformed() or forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        return True
    return gradient is not None and torch._C._functorch.is_legacy_batchedtensor(gradient)  # pyright: ignore[reportAttributeAccessIssue]


def needs_plain_backward(*gradients: Tensor | None) -> bool:
    """Whether a backward is to compute in plain PyTorch: for a graph of its own, or because nothing else serves these gradients."""
    return torch.is_grad_enabled() or any(needs_plain_torch(gradient) for gradient in gradients)


def can_run_native() -> bool:
    """Whether nothing but backward passes is to come: no compiler, no transform, no forward-mode derivatives."""
    return not (needs_plain_torch() or torch.compiler.is_compiling() or torch.is_inference_mode_enabled())


def can_call_native() -> bool:
    """Whether what runs now can be left to loops that PyTorch does not see: nothing follows, records or differentiates it forward."""
    if torch.compiler.is_compiling() or needs_plain_torch() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return False
    return not torch._C._len_torch_dispatch_stack()  # pyright: ignore[reportAttributeAccessIssue]


def known(flag: Callable[[], Tensor], device: torch.device) -> bool:
    """Whether a condition holds, asked only where the answer can be read at little cost: on a CPU, outside compiled graphs and vmap.

    Elsewhere the answer is False, and the caller does the work that the condition would have spared.
    """
    if device.type != "cpu" or not _is_eager():
        return False
    answer = flag()
    return not isinstance(answer, FakeTensor) and bool(answer)


def is_readable(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be read now; those of a fake one cannot, nor those on the meta device."""
    return _is_eager() and not (tensor.is_meta or isinstance(tensor, FakeTensor))


def _is_eager() -> bool:
    """Whether what runs now is neither compiled nor transformed, nor traced by `make_fx`."""
    return not (torch.compiler.is_compiling() or is_transformed() or is_traced())
