"""Who computes: one at a time, those whom somebody waits for before those that prepare what may be asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from attent.errors import AttentError

# A piece of work that nobody waits for, which stops between two steps for whoever is waited for.
Work = Callable[[], Iterator[None]]
# Pieces that are begun or remembered; of more the oldest are given up, since nobody looks there any longer.
PIECES = 3


class Turns:
    """A queue of two classes over one lock.

    `now` waits for at most one step of what runs in the background, where the piece that was asked for last goes first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._change = threading.Condition()
        self._waited_for = 0
        self._pieces: dict[Hashable, Iterator[None]] = {}
        self._stepping = False
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def now(self) -> Iterator[None]:
        """Compute here, before everything in the background.

        Raises:
            AttentError: it is closed.
        """
        with self._change:
            self._waited_for += 1
        try:
            with self._lock:
                if self._closed:
                    raise AttentError("the server ends")
                yield
        finally:
            with self._change:
                self._waited_for -= 1
                self._change.notify_all()

    def later(self, key: Hashable, work: Work) -> None:
        """Do a piece of work in the background; one of the same key goes on where it stands, before the others."""
        with self._change:
            if self._closed:
                return
            self._pieces[key] = self._pieces.pop(key, None) or work()
            while len(self._pieces) > PIECES:
                del self._pieces[next(iter(self._pieces))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="attent-background", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def close(self, seconds: float | None = None) -> bool:
        """Compute nothing more, and stop what runs in the background at its next step.

        Args:
            seconds: the longest to wait for that; until it has stopped unless given.

        Returns:
            Whether it has stopped.
        """
        with self._change:
            self._closed = True
            self._pieces.clear()
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def settle(self, seconds: float = 60.0) -> bool:
        """Wait until nothing is left to do in the background; whether that was so in time."""
        with self._change:
            return self._change.wait_for(lambda: not self._pieces and not self._stepping, seconds)

    def _run(self) -> None:
        while True:
            with self._change:
                self._stepping = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._closed or bool(self._pieces and not self._waited_for))
                if self._closed:
                    return
                key, steps = next(reversed(self._pieces.items()))
                self._stepping = True
            with self._lock:
                ended = _ended(steps)
            with self._change:
                if ended and self._pieces.get(key) is steps:
                    del self._pieces[key]


def _ended(steps: Iterator[None]) -> bool:
    """Whether a piece of work has come to its end with one step more; one that fails has, and whoever asks again is told why."""
    try:
        next(steps)
    except StopIteration:
        return True
    except Exception:
        logging.getLogger(__name__).exception("what was prepared in the background failed")
        return True
    return False
