"""Backwards that do not care whether autocast is on around them: it was off on the way there, and would round scores to 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def unrounded(backward: Callable[[Any, Tensor], T]) -> Callable[[Any, Tensor], T]:
    """The backward of an `autograd.Function` with autocast off."""

    @wraps(backward)
    def exact(ctx: Any, gradient: Tensor) -> T:
        if not torch.is_autocast_enabled(gradient.device.type):
            return backward(ctx, gradient)
        with torch.autocast(gradient.device.type, enabled=False):
            return backward(ctx, gradient)

    return exact
