"""Helpers for autograd: double backward, backward without autocast, recomputed forwards, and captured tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

from attent.ops.eligibility import is_transformed, needs_plain_torch, without_autocast

T = TypeVar("T")


def checkpointed(function: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Return a function's result; intermediates are recomputed in the backward.

    Under transforms, which do not support checkpoints, intermediates are stored.
    """
    return function(*arguments) if is_transformed() else checkpoint(function, *arguments, use_reentrant=False)


def needs_double_backward(*gradients: Tensor | None) -> bool:
    """Return whether a custom backward must use `double_backward`.

    This is the case if its result will be differentiated again, or if a gradient is batched.
    """
    return torch.is_grad_enabled() or needs_plain_torch(*gradients)


def double_backward(
    function: Callable[..., Any],
    inputs: Iterable[Tensor | None],
    gradients: Tensor | Sequence[Tensor | None],
    needs_grad: Sequence[bool] | None = None,
    captured: Sequence[Tensor] = (),
) -> tuple[Any, ...]:
    """Return the gradients of a function in plain PyTorch; in grad mode autograd can differentiate them again.

    Args:
        function: computes one tensor or several from the inputs.
        inputs: the arguments of the function.
        gradients: the gradients of its outputs, possibly batched; None counts as zero.
        needs_grad: which inputs need a gradient; all by default.
        captured: further leaves that the function uses but does not take as arguments.

    Returns:
        The gradient of each input and captured leaf; None for inputs that need none, are None or are unused.
    """
    inputs = tuple(inputs)
    needs_grad = [tensor is not None for tensor in inputs] if needs_grad is None else needs_grad
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Fresh views: inputs may depend on each other upstream; stop `autograd.grad` at these.
        views = [
            _view(tensor) if needs and tensor is not None else tensor
            for tensor, needs in zip(inputs, needs_grad, strict=True)
        ]
        leaves = [view for view, needs in zip(views, needs_grad, strict=True) if needs and view is not None]
        outputs = function(*views)
        if isinstance(outputs, Tensor):
            outputs, gradients = (outputs,), (gradients,) if isinstance(gradients, Tensor) else gradients
        pairs = [
            (output, gradient) for output, gradient in zip(outputs, gradients, strict=True) if gradient is not None
        ]
        sides = [output for output, _ in pairs], [*leaves, *captured], [gradient for _, gradient in pairs]
        results = iter(torch.autograd.grad(*sides, create_graph=create_graph, allow_unused=True))
    of_inputs = [
        next(results) if needs and view is not None else None for view, needs in zip(views, needs_grad, strict=True)
    ]
    return *of_inputs, *results


def _view(tensor: Tensor) -> Tensor:
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def no_autocast(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """Decorate a backward to run with autocast off, like its forward, so that scores are not rounded to 16 bits."""

    @wraps(backward)
    def wrapped(ctx: Any, gradient: Tensor) -> T:
        with without_autocast(gradient.device):
            return backward(ctx, gradient)

    return wrapped


# A node of autograd's graph and the index of one of its outputs.
Edge = tuple[Any, int]


class Captures(TorchFunctionMode):
    """Record tensors passed to PyTorch's functions that depend on leaves, by their place in autograd's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.by_edge: dict[Edge, Tensor] = {}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record the arguments of a function, and call it."""
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                self.by_edge.setdefault((tensor.grad_fn, tensor.output_nr), tensor)
        return func(*args, **(kwargs or {}))


class Replacement(TorchFunctionMode):
    """Replace certain tensors among the arguments of PyTorch's functions.

    Args:
        stand_ins: the replacements, by the `id` of the tensor to replace.
    """

    def __init__(self, stand_ins: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.stand_ins = stand_ins

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the arguments of a function, and call it."""
        if self.stand_ins:
            args, kwargs = tree_map(lambda value: self.stand_ins.get(id(value), value), (args, kwargs))
        return func(*args, **(kwargs or {}))
