"""Batches on a CPU side by side, each on one thread: what lies between a search's products takes time on one thread alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(work: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
    """What some work makes of each part, in their order; as many parts at a time as torch takes threads.

    Args:
        work: what it returns must not depend on the number of threads; settings that torch keeps for each thread, such as
            autocast's, do not hold in it.
        parts: those that take longest should come first.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2:
        yield from map(work, parts)
        return
    try:
        with ThreadPoolExecutor(min(threads, len(parts)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, parts)
    finally:
        # each thread has a number of its own, but one that begins takes the last that was set anywhere
        torch.set_num_threads(threads)
