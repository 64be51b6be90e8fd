"""Scheduling of computations, one at a time and requests before background work, and storage of their results."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from attent.errors import ArgumentError, AttentError
from attent.views.scene import Scene

# Background work: each step of the iterator computes a little, and requests run between steps.
Job = Callable[[], Iterator[None]]
# Maximum jobs running or queued; older ones are dropped, since the page no longer shows them.
MAX_JOBS = 3
# Maximum scenes stored for each run; each holds the queries and keys of its maps.
MAX_SCENES = 8


class ClosedError(AttentError):
    """A computation was requested while the server was shutting down."""


class Scheduler:
    """A lock for requests, and a thread that computes jobs while no request waits.

    `foreground` waits for at most one step of a job. The most recently queued job runs first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._change = threading.Condition()
        self._waiting = 0
        self._jobs: dict[Hashable, Iterator[None]] = {}
        self._is_stepping = self._is_closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Hold the lock for a computation in this thread, ahead of all background work.

        Raises:
            ClosedError: the scheduler is closed.
        """
        with self._change:
            self._waiting += 1
        try:
            with self._lock:
                if self._is_closed:
                    raise ClosedError("the server is shutting down")
                yield
        finally:
            with self._change:
                self._waiting -= 1
                self._change.notify_all()

    def run_in_background(self, key: Hashable, job: Job) -> None:
        """Queue a background job ahead of all others.

        A job already queued under the same key continues where it stopped.
        """
        with self._change:
            if self._is_closed:
                return
            self._jobs[key] = self._jobs.pop(key, None) or job()
            while len(self._jobs) > MAX_JOBS:
                del self._jobs[next(iter(self._jobs))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_jobs, name="attent-background", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def close(self, seconds: float | None = None) -> bool:
        """Refuse further computations, and stop the background thread after its current step.

        Args:
            seconds: the longest time to wait for the thread; no limit by default.

        Returns:
            True if the thread has stopped.
        """
        with self._change:
            self._is_closed = True
            self._jobs.clear()
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def settle(self, seconds: float = 60.0) -> bool:
        """Wait until all background jobs have ended; return whether they did in time."""
        with self._change:
            return self._change.wait_for(lambda: not self._jobs and not self._is_stepping, seconds)

    def _run_jobs(self) -> None:
        while True:
            with self._change:
                self._is_stepping = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._is_closed or bool(self._jobs and not self._waiting))
                if self._is_closed:
                    return
                key, steps = next(reversed(self._jobs.items()))
                self._is_stepping = True
            with self._lock:
                has_ended = _has_ended_after_step(steps)
            with self._change:
                if has_ended and self._jobs.get(key) is steps:
                    del self._jobs[key]


def _has_ended_after_step(steps: Iterator[None]) -> bool:
    """Run one step; return whether the job has ended.

    A failure ends the job; the next request for its result raises the error again.
    """
    try:
        # jobs yield None; the iterator itself marks the end
        return next(steps, steps) is steps
    except Exception:
        logging.getLogger(__name__).exception("a background computation failed")
        return True


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
