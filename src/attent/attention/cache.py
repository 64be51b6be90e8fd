"""An immutable cache of the keys and values seen so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attent.attention.base import LoweredSide


@dataclass(frozen=True)
class KeyValueCache:
    """Cached keys, already lowered, and values of earlier steps.

    It is immutable; `append` and `select` return a new cache.
    """

    key: LoweredSide  # features (B, G, T, D')
    value: Tensor  # (B, G, T, Dv)

    @property
    def length(self) -> int:
        """The number of keys T, in tokens."""
        return self.value.shape[2]

    def append(self, key: LoweredSide, value: Tensor) -> KeyValueCache:
        """Return the cache with keys and values appended; the keys must be lowered about the same center."""
        if not self.length:
            # a side lowered before the first key has no center
            return KeyValueCache(key, value)
        features = torch.cat((self.key.features, key.features), 2)
        bias = None if self.key.bias is None or key.bias is None else torch.cat((self.key.bias, key.bias), 2)
        return KeyValueCache(LoweredSide(features, bias, self.key.center), torch.cat((self.value, value), 2))

    def select(self, rows: Tensor) -> KeyValueCache:
        """Return the cache of some sequences of the batch in the given order, such as the survivors of a search.

        Args:
            rows: (B',) whole numbers below B, or (B,) booleans.
        """
        key = LoweredSide(*(None if part is None else part[rows] for part in self.key))  # pyright: ignore[reportArgumentType]
        return KeyValueCache(key, self.value[rows])
