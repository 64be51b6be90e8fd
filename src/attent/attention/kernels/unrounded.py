"""Backwards that do not care whether autocast is on around them: it was off on the way there, and would round scores to 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch import Tensor

from attent.attention.checks import without_autocast

T = TypeVar("T")


def unrounded(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """The backward of an `autograd.Function` with autocast off."""

    @wraps(backward)
    def exact(ctx: Any, gradient: Tensor) -> T:
        with without_autocast(gradient.device):
            return backward(ctx, gradient)

    return exact
