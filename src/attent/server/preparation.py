"""Work on the texts of a request beside the event loop, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from attent.server.batcher import yield_to_requests

Value = TypeVar("Value")
# Characters or bytes whose work takes a few milliseconds at most, less than a thread's turn where all cores are busy.
SMALL = 1_000
# one at a time: each may need several times the memory of its text
_THREAD = ThreadPoolExecutor(1, "attent-texts", yield_to_requests)


async def prepare(size: int, function: Callable[..., Value], *arguments: object) -> Value:
    """Return the value of a function: at once where its text is small, else from the thread of long texts.

    Args:
        size: characters or bytes that it goes through.
        function: takes a time in proportion to them.
        arguments: of the function.
    """
    if size <= SMALL:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, function, *arguments)


def wait_until_idle(seconds: float | None = None) -> bool:
    """Wait until the thread of long texts has done what it was given, for so many seconds, or forever.

    Return whether it has.
    """
    return not wait([_THREAD.submit(int)], seconds).not_done
