"""The queue: batches are shared, bounded, and change no answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from attent.server.batcher import Batcher
from attent.server.errors import RequestError
from attent.server.settings import ServerSettings

Start = Callable[..., Batcher]


@dataclass(eq=False)
class Upper:
    """Work that can be held up, and remembers its batches."""

    batches: list[list[str]] = field(default_factory=list)
    may_go: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.batches.append([*texts])
        self.has_begun.set()
        assert self.may_go.wait(30)
        if "bad" in texts:
            raise RequestError(400, "bad")
        return [text.upper() for text in texts]


@pytest.fixture
def work() -> Upper:
    return Upper()


@pytest.fixture
def batcher(work: Upper) -> Iterator[Start]:
    queues = list[Batcher]()

    def start(**settings: object) -> Batcher:
        queues.append(Batcher(ServerSettings(**{"window": 50.0} | settings)))
        return queues[-1]

    yield start
    work.may_go.set()
    for queue in queues:
        queue.close()


async def begun(work: Upper) -> None:
    await asyncio.to_thread(work.has_begun.wait, 30)


def test_requests_of_the_same_work_share_a_batch(batcher: Start, work: Upper) -> None:
    second, queue = Upper(), batcher()
    work.may_go.set()
    second.may_go.set()

    async def ask() -> list[list[str]]:
        requests = (queue.submit(["a", "b"], work), queue.submit(["b"], second), queue.submit(["c"], work))
        return [*await asyncio.gather(*requests)]

    assert asyncio.run(ask()) == [["A", "B"], ["B"], ["C"]]
    assert (work.batches, second.batches) == ([["a", "b", "c"]], [["b"]])


def test_a_batch_takes_those_of_like_length_with_the_oldest(batcher: Start, work: Upper) -> None:
    work.may_go.set()
    asyncio.run(batcher(batch=3).submit(["aaaa", "b", "cccccc", "dddd", "ee", "ffff"], work))
    assert work.batches[0] == ["ee", "aaaa", "dddd"]


def test_a_full_queue_refuses_at_once_and_a_request_is_taken_whole_or_not(batcher: Start, work: Upper) -> None:
    queue = batcher(queue_limit=4)

    async def ask() -> None:
        first = asyncio.create_task(queue.submit(["a"], work))
        await begun(work)
        second = asyncio.create_task(queue.submit(["b"] * 3, work))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="busy") as refused:
            await queue.submit(["c", "d"], work)
        assert refused.value.status == 429 and int(refused.value.headers["Retry-After"]) >= 1
        assert queue.waiting == 3
        work.may_go.set()
        assert (await first, await second) == (["A"], ["B"] * 3)
        assert await queue.submit(["c", "d"], work) == ["C", "D"]

    asyncio.run(ask())


def test_a_request_that_takes_too_long_is_given_up(batcher: Start, work: Upper) -> None:
    with pytest.raises(RequestError, match="too long"):
        asyncio.run(batcher(timeout=0.2).submit(["a"], work))


def test_an_error_is_its_own_batchs(batcher: Start, work: Upper) -> None:
    work.may_go.set()
    queue = batcher()
    with pytest.raises(RequestError, match="bad"):
        asyncio.run(queue.submit(["bad"], work))
    assert asyncio.run(queue.submit(["a"], work)) == ["A"]


def test_the_end_finishes_what_waits_and_refuses_what_comes(batcher: Start, work: Upper) -> None:
    queue = batcher(batch=1)

    async def ask() -> None:
        tasks = [asyncio.create_task(queue.submit([text], work)) for text in "ab"]
        await begun(work)
        closing = asyncio.create_task(asyncio.to_thread(queue.close))
        while not queue._is_closing:
            await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="shutting down"):
            await queue.submit(["c"], work)
        work.may_go.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"]]
        await closing

    asyncio.run(ask())
