"""T5's relative position bias: a learned bias for each bucket of distances."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import Pairs, Position
from attent.errors import ArgumentError, ShapeError


class RelativeBias(Position):
    """A learned number b[bucket(j − p(i)), h] added to each score.

    Small distances have a bucket each, large ones share buckets that grow logarithmically. Raffel et al. 2020 (T5),
    §2.1 and the released code (arXiv:1910.10683).

    Args:
        heads: H.
        buckets: the number of buckets, ≥ 2, even if bidirectional.
        maximum_distance: the distance in tokens from which all keys share the last bucket.
        bidirectional: whether keys after the query have their own buckets; if not, they share the bucket of distance 0.

    Raises:
        ArgumentError: too few buckets, or a maximum distance within the small ones.
    """

    aliases: ClassVar[tuple[str, ...]] = ("t5", "t5_bias")
    biases: ClassVar[bool] = True

    def __init__(self, heads: int, buckets: int = 32, maximum_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        one_way = buckets // 2 if bidirectional else buckets
        if one_way < 2 or maximum_distance <= one_way // 2:
            raise ArgumentError(f"relative_bias cannot distribute {buckets} buckets over {maximum_distance} tokens")
        self.heads, self.buckets, self.maximum_distance, self.bidirectional = (
            heads,
            buckets,
            maximum_distance,
            bidirectional,
        )
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    @classmethod
    def for_heads(cls, heads: int) -> Self:
        """Return T5's 32 buckets for each head."""
        return cls(heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance j − p, in tokens."""
        count = self.buckets
        offset = torch.zeros_like(distance)
        if self.bidirectional:
            count //= 2
            offset = (distance > 0).to(distance.dtype) * count
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = count // 2
        growth = (distance.clamp(min=1).float() / exact).log() / math.log(self.maximum_distance / exact)
        shared = (exact + (growth * (count - exact)).to(distance.dtype)).clamp(max=count - 1)
        return offset + torch.where(distance < exact, distance, shared)

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias, (B|1, H, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return self.table[self.bucket(key - query)[:, 0]].permute(0, 3, 1, 2)

    def bias_by_offset(self, offsets: Tensor) -> Tensor:
        """Return the bias of pairs with these offsets, (H, n)."""
        return self.table[self.bucket(offsets)].T

    def check(self, heads: int, width: int) -> None:
        """Raise ShapeError if the table has a different number of heads."""
        if heads != self.heads:
            raise ShapeError(f"relative_bias was made for {self.heads} heads, got {heads}")

    def extra_repr(self) -> str:
        """Return the shape of the table, and its maximum distance."""
        return f"heads={self.heads}, buckets={self.buckets}, maximum_distance={self.maximum_distance}"
