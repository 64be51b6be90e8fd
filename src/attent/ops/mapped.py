"""Parameters whose memory is that of a file: what has been read of them need not stay in memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

# Linux, <linux/mman.h>: give pages back, whose content the system reads again when it is needed; nothing is lost.
PAGE_OUT = 21


@cache
def _advise() -> Any:
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def give_back(numbers: Tensor) -> None:
    """Give back the memory of contiguous numbers that a file holds.

    Other systems than Linux do so when they need it.
    """
    if (advise := _advise()) is not None and numbers.nbytes:
        first = numbers.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        advise(first, numbers.data_ptr() + numbers.nbytes - first, PAGE_OUT)


def is_mapped(parameter: Tensor) -> bool:
    """Return whether `adopt` put a parameter where it is."""
    return getattr(parameter, "in_file", False)


def adopt(model: nn.Module, tensors: Mapping[Tensor, Tensor]) -> None:
    """Put tensors, such as a mapped file's, in the place of a model's parameters and buffers.

    These may be without memory.

    Args:
        model: the model.
        tensors: of each parameter and buffer, by identity, what replaces it wherever it stands; of the same shape.
    """
    new: dict[int, Tensor] = {}
    for old, tensor in tensors.items():
        tensor = tensor.to(old.dtype)
        new[id(old)] = (
            nn.Parameter(tensor, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else tensor
        )
        new[id(old)].in_file = True  # pyright: ignore[reportAttributeAccessIssue]
    for module in model.modules():
        for members in (module._parameters, module._buffers):
            for name, old in members.items():
                if old is not None:
                    members[name] = new[id(old)]  # pyright: ignore[reportArgumentType]
