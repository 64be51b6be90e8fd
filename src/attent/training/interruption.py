"""Ctrl-C, held back until an update is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# The second is what a machine sends that wants to be shut down or to be lent to somebody else.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interruption:
    """Whether somebody wants training to stop."""

    is_requested: bool = False


@contextmanager
def deferred_interrupt() -> Iterator[Interruption]:
    """Within the block, the first Ctrl-C is only noted; the second acts as it always does.

    Only a process' main thread can be interrupted; in others nothing is held back.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: object) -> None:
        interruption.is_requested = True
        give_back()

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        give_back()
