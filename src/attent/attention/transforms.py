"""What is at work around a call: torch.func's transforms (vmap, grad, jvp and what is made of them), forward mode, batched gradients.

Neither fused kernels nor operators of our own have rules for them; plain PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint


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


def aliases(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Other names for tensors, all differentiable: one may have been computed of another, which a derivative must not go through."""
    return [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]


def checkpointed(function: Callable[..., Tensor], *arguments: object) -> Tensor:
    """What a function returns, computed once more for its gradients; transforms know no checkpoints, and keep all of it."""
    return function(*arguments) if is_transformed() else checkpoint(function, *arguments, use_reentrant=False)


def plain_gradients(
    function: Callable[..., Tensor | Sequence[Tensor]], inputs: Iterable[Tensor], gradients: Tensor | Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients of a function in plain PyTorch, through which a graph can be made in grad mode.

    Args:
        function: of the inputs.
        inputs: tensors.
        gradients: those of what the function returns; they alone may be many at once.
    """
    is_differentiated_again = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = aliases(inputs)
        return torch.autograd.grad(function(*inputs), inputs, gradients, create_graph=is_differentiated_again)
