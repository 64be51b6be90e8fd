"""Backward passes in plain PyTorch, recomputed forwards, and autocast switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attent.ops.eligibility import is_transformed

T = TypeVar("T")


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


def is_autocast(device: torch.device) -> bool:
    """Whether autocast is on for a type of device; it never is for one that has none, such as meta."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which autocast, which would round scores to 16 bits on the way, is off."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def no_autocast(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """The backward of an `autograd.Function` with autocast off."""

    @wraps(backward)
    def exact(ctx: Any, gradient: Tensor) -> T:
        with without_autocast(gradient.device):
            return backward(ctx, gradient)

    return exact
