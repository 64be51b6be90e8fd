"""A cache of computed tensors, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from torch import Tensor


class LRUCache:
    """Tensors by key; beyond the bound the least recently used ones are dropped.

    Args:
        bound: bytes of all tensors, 32 MiB unless given; one that is larger by itself is not stored.
    """

    def __init__(self, bound: int = 2**25) -> None:
        self.bound, self.size = bound, 0
        self._tensors: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Tensor | None:
        """Return the tensor stored under a key, or None."""
        with self._lock:
            if key in self._tensors:
                self._tensors.move_to_end(key)
            return self._tensors.get(key)

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Store a tensor, replacing the one under the same key."""
        with self._lock:
            if key in self._tensors:
                self.size -= self._tensors.pop(key).nbytes
            if tensor.nbytes <= self.bound:
                self._tensors[key] = tensor
                self.size += tensor.nbytes
            while self.size > self.bound:
                self.size -= self._tensors.popitem(last=False)[1].nbytes
