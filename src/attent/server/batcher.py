"""Batching across requests: one bounded queue of sentences, from which worker threads take batches.

A translation does not depend on its batch, so requests can share batches without changing answers.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch

from attent import system
from attent.server.errors import RequestError, busy
from attent.server.settings import ServerSettings

# Number of recent batches used to estimate the waiting time.
REMEMBERED = 16
# Nice value of the batch threads, relative to the thread that answers requests.
NICENESS = 5
# Characters or bytes that take at most a few milliseconds to process, less than a thread's turn when all cores are
# busy.
SMALL = 1_000
Value = TypeVar("Value")


class Work(Hashable, Protocol):
    """The computation for a batch of sentences; sentences with equal work may share a batch."""

    def __call__(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Return a result for each sentence."""
        ...


@dataclass(eq=False)
class Sentence:
    """A sentence in the queue.

    Args:
        text: the sentence; its `len` is its number of characters.
        work: the computation to run on it.
        result: the future in which the request's event loop awaits the result.
        queued: when it entered the queue, on the monotonic clock.
    """

    text: Sized
    work: Work
    result: asyncio.Future[Any]
    queued: float = field(default_factory=time.monotonic)


class Batcher:
    """Translates the sentences of requests in batches.

    Args:
        settings: the server's settings.
        observe: called from the worker threads after each batch with its group, its number of sentences, their
            characters, its seconds, and the longest wait of a sentence.
        prepare: called by each worker thread before its first batch.
        group: returns the group of a work; groups in the queue take turns, so that none waits for all sentences of
            another.
    """

    def __init__(
        self,
        settings: ServerSettings,
        observe: Callable[[Any, int, int, float, float], None] = lambda *numbers: None,
        prepare: Callable[[], object] | None = None,
        group: Callable[[Any], Hashable] = lambda work: None,
    ) -> None:
        self._settings, self._observe, self._prepare, self._group = settings, observe, prepare, group
        self._queue: list[Sentence] = []
        # for each group in the queue: the number of batches before its last one, or before it came
        self._batches, self._last_batches = 0, dict[Hashable, int]()
        self._condition = threading.Condition()
        self._is_closing, self.running = False, 0
        self._pace = [0.01 / settings.batch]
        # daemons, so that a server that fails to start can exit; `close` ends them in order
        self._threads = [
            threading.Thread(target=self._work, name=f"attent-batch-{number}", daemon=True)
            for number in range(settings.workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of sentences in the queue."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Return whether the queue has no room for another sentence."""
        return len(self._queue) >= self._settings.queue_limit

    def check_room(self) -> None:
        """Check that the queue has room, before any work is done for the request.

        Raises:
            RequestError: the queue is full.
        """
        if self.is_full:
            raise self.refusal()

    def refusal(self) -> RequestError:
        """Return the error for a full queue; its waiting time is estimated from the speed of recent batches."""
        return busy(sum(self._pace) / len(self._pace) * len(self._queue) / self._settings.workers)

    async def submit(self, texts: Sequence[Sized], work: Work) -> list[Any]:
        """Return the result of each sentence, once their batches are done.

        If the caller is canceled, its sentences are removed from the queue.

        Raises:
            RequestError: the queue is full, the server is shutting down, the request took too long, or its work failed.
        """
        sentences = self._enqueue([(text, work) for text in texts])
        try:
            async with asyncio.timeout(self._settings.timeout):
                return [await sentence.result for sentence in sentences]
        except TimeoutError:
            raise RequestError(503, "The request took too long") from None
        finally:
            self._abandon(sentences)

    async def stream(self, sentences: Sequence[tuple[Sized, Work]]) -> AsyncGenerator[Any, None]:
        """Yield the result of each sentence, in order, once its batch is done.

        If the caller stops iterating, the remaining sentences are removed from the queue.

        Args:
            sentences: the sentences, each with its own work; either all are queued or none.

        Raises:
            RequestError: as for `submit`.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        waiting = self._enqueue(sentences)
        try:
            for sentence in waiting:
                async with asyncio.timeout_at(deadline):
                    result = await sentence.result
                yield result
        except TimeoutError:
            raise RequestError(503, "The request took too long") from None
        finally:
            self._abandon(waiting)

    def close(self, seconds: float | None = None) -> bool:
        """Refuse new sentences, finish those in the queue, and end the threads.

        Args:
            seconds: the longest time to wait for them, after which the remaining sentences are dropped; no limit by
                default.

        Returns:
            True if the threads have ended.
        """
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))
        with self._condition:
            self._queue.clear()
        return not any(thread.is_alive() for thread in self._threads)

    def _enqueue(self, pairs: Sequence[tuple[Sized, Work]]) -> list[Sentence]:
        loop = asyncio.get_running_loop()
        sentences = [Sentence(text, work, loop.create_future()) for text, work in pairs]
        with self._condition:
            if self._is_closing:
                raise RequestError(503, "The server is shutting down")
            if len(self._queue) + len(sentences) > self._settings.queue_limit:
                raise self.refusal()
            self._queue += sentences
            self._condition.notify()
        return sentences

    def _abandon(self, sentences: Sequence[Sentence]) -> None:
        """Remove sentences without a result from the queue, because their request has ended."""
        without_result = set[Sentence]()
        for sentence in sentences:
            if sentence.result.cancel() or sentence.result.cancelled():
                without_result.add(sentence)
            else:
                # otherwise asyncio would report an exception that was never retrieved
                sentence.result.exception()
        if without_result:
            with self._condition:
                self._queue = [sentence for sentence in self._queue if sentence not in without_result]

    def _work(self) -> None:
        """Translate batches until the server closes; each worker thread uses one core."""
        torch.set_num_threads(1)
        yield_to_requests()
        if self._prepare is not None:
            self._prepare()
        while self._translate(self._next_batch()):
            pass

    def _translate(self, batch: Sequence[Sentence]) -> bool:
        """Translate a batch, which is not referenced afterwards; return whether it has sentences."""
        if not batch:
            return False
        begin, work = time.monotonic(), batch[0].work
        try:
            results: Sequence[Any] | Exception = work([sentence.text for sentence in batch])
        except Exception as error:
            results = error
        seconds = time.monotonic() - begin
        with self._condition:
            self.running -= len(batch)
            self._pace = [*self._pace[1 - REMEMBERED :], seconds / len(batch)]
        characters = sum(len(sentence.text) for sentence in batch)
        wait = begin - min(sentence.queued for sentence in batch)
        self._observe(self._group(work), len(batch), characters, seconds, wait)
        self._deliver(batch, results)
        return True

    def _next_batch(self) -> list[Sentence]:
        """Wait for sentences and take a batch; it is empty once the server closes and the queue is empty.

        A batch has the oldest sentence of the group whose turn it is, and those with the same work closest to it in
        length.
        """
        size = self._settings.batch
        with self._condition:
            while True:
                while not self._queue:
                    if self._is_closing:
                        return []
                    self._condition.wait()
                wait = self._queue[0].queued + self._settings.window / 1000 - time.monotonic()
                if len(self._queue) >= size or wait <= 0 or self._is_closing:
                    break
                self._condition.wait(wait)
            oldest = self._oldest()
            candidates = sorted(
                (item for item in self._queue if item.work == oldest.work), key=lambda item: len(item.text)
            )
            middle = next(rank for rank, item in enumerate(candidates) if item is oldest)
            begin = min(max(middle - size // 2, 0), max(len(candidates) - size, 0))
            batch = candidates[begin : begin + size]
            in_batch = set(batch)
            self._queue = [item for item in self._queue if item not in in_batch]
            self.running += len(batch)
            if self._queue:
                self._condition.notify()
            return batch

    def _oldest(self) -> Sentence:
        """Return the oldest sentence of the group that has waited for a turn longest."""
        oldest: dict[Hashable, Sentence] = {}
        for sentence in self._queue:
            oldest.setdefault(self._group(sentence.work), sentence)
        self._last_batches = {group: self._last_batches.get(group, self._batches) for group in oldest}
        group = min(oldest, key=self._last_batches.__getitem__)
        self._batches += 1
        self._last_batches[group] = self._batches
        return oldest[group]

    @staticmethod
    def _deliver(batch: Sequence[Sentence], results: Sequence[Any] | Exception) -> None:
        """Pass results to the event loops that await them, with one call per loop."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Sentence, Any]]] = {}
        for index, sentence in enumerate(batch):
            result = results if isinstance(results, Exception) else results[index]
            loops.setdefault(sentence.result.get_loop(), []).append((sentence, result))
        for loop, pairs in loops.items():
            # a closed loop awaits nothing
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, pairs)


def yield_to_requests() -> None:
    """Lower the priority of this thread, so that requests are read and refused promptly while all cores are busy."""
    # Linux has a priority per thread, other systems only per process
    if system.IS_LINUX:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def _settle(pairs: Sequence[tuple[Sentence, Any]]) -> None:
    """Set the results of the requests that still wait for them."""
    for sentence, result in pairs:
        if sentence.result.done():
            continue
        if isinstance(result, Exception):
            sentence.result.set_exception(result)
        else:
            sentence.result.set_result(result)


# one at a time: each may need several times the memory of its text
_THREAD = ThreadPoolExecutor(1, "attent-texts", yield_to_requests)
# one at a time: runs share the memory
LOADER = ThreadPoolExecutor(1, "attent-load", yield_to_requests)


async def prepare(size: int, function: Callable[..., Value], *arguments: object) -> Value:
    """Return a function's result, computed here if its input is small and otherwise in the thread for long texts.

    Args:
        size: the number of characters or bytes that it processes.
        function: a function whose run time is proportional to this size.
        arguments: the function's arguments.
    """
    if size <= SMALL:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, function, *arguments)


def wait_until_idle(seconds: float | None = None) -> bool:
    """Wait until the threads for long texts and for loading have finished their work; return whether they have.

    Args:
        seconds: the longest time to wait; no limit by default.
    """
    return not wait([_THREAD.submit(int), LOADER.submit(int)], seconds).not_done
