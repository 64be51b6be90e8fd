"""A lock for computations, one at a time, and storage of their results."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from attent.errors import ArgumentError, AttentError
from attent.views.scene import Scene

# Maximum scenes stored for each run; each holds the queries and keys of its maps.
MAX_SCENES = 8


class ClosedError(AttentError):
    """A computation was requested while the server was shutting down."""


class Scheduler:
    """A lock for computations, one at a time, until the server shuts down."""

    def __init__(self) -> None:
        self._lock, self._is_closed = threading.Lock(), False

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Hold the lock for a computation in this thread.

        Raises:
            ClosedError: the scheduler is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the server is shutting down")
            yield

    def close(self) -> None:
        """Refuse further computations."""
        self._is_closed = True


class LRUCache:
    """A cache of tensors by key; beyond the bound the least recently used ones are dropped.

    Args:
        bound: maximum bytes of all tensors together, 32 MiB by default; a single larger tensor is not stored.
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


class SceneStore:
    """Scenes by number: fixed ones, and the most recent ones of each run.

    Args:
        fixed: scenes that are never dropped, numbered from 0.
        bound: the maximum number of other scenes stored for each run.
    """

    def __init__(self, fixed: Sequence[Scene] = (), bound: int = MAX_SCENES) -> None:
        self.fixed, self.bound = tuple(fixed), bound
        # by number, each with its run; the most recently used one is last
        self._recent: OrderedDict[int, tuple[int, Scene]] = OrderedDict()
        self._next = len(self.fixed)
        self._lock = threading.Lock()

    def add(self, scene: Scene, run_number: int = 0) -> int:
        """Store a scene, and drop the least recently used one of the same run if there are too many.

        Returns:
            Its number, which is never reused.
        """
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._recent[number] = (run_number, scene)
            of_run = [number for number, (owner, _) in self._recent.items() if owner == run_number]
            for old in of_run[: -self.bound]:
                del self._recent[old]
        return number

    def __getitem__(self, number: int) -> Scene:
        if 0 <= number < len(self.fixed):
            return self.fixed[number]
        with self._lock:
            if number not in self._recent:
                raise ArgumentError(f"view {number} is unknown, or was dropped in favor of later ones: create it again")
            self._recent.move_to_end(number)
            return self._recent[number][1]
