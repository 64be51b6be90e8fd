"""A different mask for each head."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs, keys_visible_in_any
from attent.attention.masks.window import Window
from attent.errors import ArgumentError, ShapeError

# the mask of a head without one
EVERYTHING = Window(None, None)


class PerHead(Mask):
    """A mask for each head: head h uses masks[h].

    Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers", §2 (arXiv:1905.07799) give each head its own
    scope.

    Args:
        masks: one mask for each head, in order; None for a head that attends to all keys.

    Raises:
        ArgumentError: one of them is neither a Mask nor None.
    """

    aliases: ClassVar[tuple[str, ...]] = ("multi_scale",)

    def __init__(self, masks: Sequence[Mask | None]) -> None:
        self.masks = tuple(EVERYTHING if mask is None else mask for mask in masks)
        if not all(isinstance(mask, Mask) for mask in self.masks):
            raise ArgumentError(f"per_head needs a Mask or None for each head, got {masks!r}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H, Tq, Tk)."""
        return torch.cat(torch.broadcast_tensors(*(mask.allowed(pairs)[:, :1] for mask in self.masks)), 1)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range of each head."""
        ranges = [mask.key_range(pairs) for mask in self.masks]
        if any(key_range is None for key_range in ranges):
            return None
        bounds = zip(*((key_range.begin, key_range.end) for key_range in ranges if key_range is not None), strict=True)
        begin, end = (torch.cat(torch.broadcast_tensors(*(bound[:, :1] for bound in side)), 1) for side in bounds)
        return KeyRange(begin, end, exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Return the keys that are visible in any head."""
        return keys_visible_in_any(self.masks, pairs)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that there are as many masks as heads."""
        if len(self.masks) != heads:
            raise ShapeError(f"per_head needs a mask for each of {heads} heads, got {len(self.masks)}")
        for mask in self.masks:
            mask.check(batch, 1, queries, keys)

    def __repr__(self) -> str:
        return f"PerHead({list(self.masks)!r})"
