"""Both sides of a comparison timed in turn in one process, so that what else the machine does falls on both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Work = Callable[[], object]


class Times(NamedTuple):
    """Milliseconds of one side: the least, and the middle of all."""

    best: float
    median: float


def timed(
    sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0, wait: Callable[[], object] = lambda: None
) -> dict[str, Times]:
    """The time of each side, the sides in turn; fewer rounds where they take long.

    Within a round each side runs four times in a row and the first does not count, so that each finds the caches and the allocator
    as it left them itself, not as the side before it did.

    Args:
        sides: what to time, by name; each is run once before.
        rounds: how often each is timed at most.
        seconds: no new round begins after so long, the third excepted.
        wait: returns when the device has done what it was given.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work()
    started = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - started > seconds:
            break
        for name, work in sides.items():
            work()
            for _ in range(3):
                wait()
                before = time.perf_counter()
                work()
                wait()
                taken[name].append(1000 * (time.perf_counter() - before))
    return {name: Times(min(times), statistics.median(times)) for name, times in taken.items()}


def milliseconds(sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0) -> dict[str, float]:
    """The least time of each side; arguments as for `timed`."""
    return {name: times.best for name, times in timed(sides, rounds=rounds, seconds=seconds).items()}
