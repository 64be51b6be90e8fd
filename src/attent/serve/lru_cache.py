"""What was computed and may be asked for again, within a bound of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from torch import Tensor

MEBIBYTE = 2**20


class Kept:
    """Tensors by their keys; beyond the bound those that were not asked for longest are forgotten.

    Args:
        bound: how many bytes all of them may take. One that is larger by itself is not kept.
    """

    def __init__(self, bound: int = 32 * MEBIBYTE) -> None:
        self.bound, self.size = bound, 0
        self._found: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Tensor | None:
        """What is kept under this key."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Keep a tensor, in the place of what was kept under the same key."""
        with self._lock:
            if key in self._found:
                self.size -= self._found.pop(key).nbytes
            if tensor.nbytes > self.bound:
                return
            self._found[key] = tensor
            self.size += tensor.nbytes
            while self.size > self.bound:
                self.size -= self._found.popitem(last=False)[1].nbytes

    def __len__(self) -> int:
        return len(self._found)
