"""The queue: batches are shared, bounded, and change no answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from attent.server.batcher import Batcher
from attent.server.errors import RequestError
from attent.server.settings import ServerSettings


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
def work() -> Iterator[Upper]:
    work = Upper()
    yield work
    work.may_go.set()


def batcher(**settings: object) -> Batcher:
    return Batcher(ServerSettings(**{"window": 50.0} | settings))


async def begun(work: Upper) -> None:
    await asyncio.to_thread(work.has_begun.wait, 30)


def test_requests_share_a_batch(work: Upper) -> None:
    work.may_go.set()

    async def ask(queue: Batcher) -> list[list[str]]:
        return await asyncio.gather(*(queue.submit([f"a{number}", "b"], work) for number in range(5)))

    queue = batcher()
    assert asyncio.run(ask(queue)) == [[f"A{number}", "B"] for number in range(5)]
    assert [len(batch) for batch in work.batches] == [10]
    queue.close()


def test_other_work_has_another_batch(work: Upper) -> None:
    second = Upper()
    work.may_go.set()
    second.may_go.set()

    async def ask(queue: Batcher) -> list[list[str]]:
        return [
            *await asyncio.gather(queue.submit(["a"], work), queue.submit(["b"], second), queue.submit(["c"], work))
        ]

    queue = batcher()
    assert asyncio.run(ask(queue)) == [["A"], ["B"], ["C"]]
    assert (work.batches, second.batches) == ([["a", "c"]], [["b"]])
    queue.close()


def test_a_batch_takes_those_of_like_length_with_the_oldest(work: Upper) -> None:
    work.may_go.set()
    queue = batcher(batch=3)
    asyncio.run(queue.submit(["aaaa", "b", "cccccc", "dddd", "ee", "ffff"], work))
    assert work.batches[0] in (["aaaa", "dddd", "ffff"], ["ee", "aaaa", "dddd"])
    queue.close()


def test_a_full_queue_refuses_at_once_and_a_request_is_taken_whole_or_not(work: Upper) -> None:
    async def ask(queue: Batcher) -> None:
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

    queue = batcher(queue_limit=4)
    asyncio.run(ask(queue))
    queue.close()


def test_who_goes_takes_the_sentences_along(work: Upper) -> None:
    async def ask(queue: Batcher) -> None:
        first = asyncio.create_task(queue.submit(["a"], work))
        await begun(work)
        gone = asyncio.create_task(queue.submit(["b", "c"], work))
        await asyncio.sleep(0)
        assert queue.waiting == 2
        gone.cancel()
        await asyncio.wait([gone])
        assert queue.waiting == 0
        work.may_go.set()
        assert await first == ["A"]

    queue = batcher()
    asyncio.run(ask(queue))
    queue.close()
    assert work.batches == [["a"]]


def test_a_request_that_takes_too_long_is_given_up(work: Upper) -> None:
    queue = batcher(timeout=0.2)
    with pytest.raises(RequestError, match="too long"):
        asyncio.run(queue.submit(["a"], work))
    work.may_go.set()
    queue.close()


def test_an_error_is_its_own_batchs(work: Upper) -> None:
    work.may_go.set()
    queue = batcher()
    with pytest.raises(RequestError, match="bad"):
        asyncio.run(queue.submit(["bad"], work))
    assert asyncio.run(queue.submit(["a"], work)) == ["A"]
    queue.close()


def test_the_end_finishes_what_waits_and_refuses_what_comes(work: Upper) -> None:
    async def ask(queue: Batcher) -> None:
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

    asyncio.run(ask(batcher(batch=1)))
