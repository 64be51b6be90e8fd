"""Sides of a comparison timed in turn in one process, so that other load on the machine falls on each of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Work = Callable[[], object]


class Timing(NamedTuple):
    """Milliseconds of one side: the least and the median."""

    best: float
    median: float


def time_in_turn(
    sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0, wait: Callable[[], object] = lambda: None
) -> dict[str, Timing]:
    """Time each side, the sides in turn; fewer rounds if they take long.

    Within a round each side runs four times in a row and the first does not count, so that each finds the caches and
    the allocator as it left them itself, not as the side before it did.

    Args:
        sides: the work to time, by name; each is run once before.
        rounds: the most rounds.
        seconds: no new round begins after this time, except up to the third.
        wait: returns when the device is idle.
    """
    durations: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work()
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > seconds:
            break
        for name, work in sides.items():
            work()
            for _ in range(3):
                wait()
                begin = time.perf_counter()
                work()
                wait()
                durations[name].append(1000 * (time.perf_counter() - begin))
    return {name: Timing(min(times), statistics.median(times)) for name, times in durations.items()}


def milliseconds(sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0) -> dict[str, float]:
    """Return the least time of each side; arguments as for `time_in_turn`."""
    return {name: timing.best for name, timing in time_in_turn(sides, rounds=rounds, seconds=seconds).items()}
