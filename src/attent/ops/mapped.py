"""Parameters backed by a memory-mapped file, whose pages can be released from memory."""

import ctypes
import mmap
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

from attent import system

# MADV_PAGEOUT of Linux's <linux/mman.h>: releases pages, whose content is read again when it is needed.
PAGE_OUT = 21


@cache
def _advise() -> Any:
    if not system.IS_LINUX:
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def give_back(numbers: Tensor) -> None:
    """Release the memory of a contiguous tensor that is backed by a file.

    Systems other than Linux reclaim such memory on their own when they need it.
    """
    if (advise := _advise()) is not None and numbers.nbytes:
        first = numbers.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        advise(first, numbers.data_ptr() + numbers.nbytes - first, PAGE_OUT)


def is_mapped(parameter: Tensor) -> bool:
    """Return whether a parameter was installed by `adopt`."""
    return getattr(parameter, "in_file", False)


def adopt(model: nn.Module, tensors: Mapping[Tensor, Tensor]) -> None:
    """Replace a model's parameters and buffers by other tensors, such as those of a mapped file.

    The replaced tensors may be on the meta device.

    Args:
        model: the model.
        tensors: the replacement of each parameter and buffer, with the same shape.
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
