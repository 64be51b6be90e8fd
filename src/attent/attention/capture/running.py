"""The modules that are running when a function is called."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from torch import nn


def running_modules(frame: FrameType | None) -> Iterator[nn.Module]:
    """Yield the modules whose methods are running, innermost first."""
    while frame is not None:
        first = first_argument(frame)
        if isinstance(first, nn.Module):
            yield first
        frame = frame.f_back


def first_argument(frame: FrameType) -> object:
    """Return the first argument of a running function: the module, if it is a module's method."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
