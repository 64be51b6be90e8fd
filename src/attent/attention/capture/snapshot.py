"""What a call saw, kept as it was: copied where the model may write over it, held as it is where nobody will."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from attent.errors import StaleMapError

# a tensor may share its storage with this many like it: queries, keys and values come out of one product
SHARED = 3


class Kept(NamedTuple):
    """A tensor without its graph, and how often it had been written to when it was kept."""

    tensor: Tensor
    version: int | None = None

    def seen(self) -> Tensor:
        """The tensor.

        Raises:
            StaleMapError: it was written over since, so that what the call saw is lost.
        """
        if self.version is not None and self.tensor._version != self.version:
            raise StaleMapError("what this map is made of was changed in place after the call; look at the map before the change")
        return self.tensor


def keep(tensor: Tensor) -> Kept:
    """Queries, keys or a mask: a copy if they lie in something that is written again and again, such as a cache."""
    if tensor.is_nested:
        return Kept(tensor.detach())
    if rewritten(tensor):
        return Kept(tensor.detach().clone())
    # without a graph it is as good as detached, and one tensor less to make
    return Kept(tensor.detach() if tensor.requires_grad else tensor, tensor._version)


def hold(tensor: Tensor) -> Kept:
    """A parameter: never copied, but known if it changes."""
    return Kept(tensor.detach(), None if tensor.is_inference() else tensor._version)


def rewritten(tensor: Tensor) -> bool:
    """Whether the model may write to a tensor again: it did so before, or it is a parameter, or part of a larger buffer."""
    if tensor.is_inference() or tensor._version:
        # inference mode does not count what is written
        return True
    base = tensor._base
    whole = tensor if base is None else base
    if whole.requires_grad and whole.is_leaf:
        # what an optimizer will change
        return True
    return tensor.untyped_storage().nbytes() > SHARED * tensor.nbytes
