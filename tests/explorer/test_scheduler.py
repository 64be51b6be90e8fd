from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
import torch

from attent.explorer.scheduler import MAX_JOBS, LRUCache, Scheduler


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    built = Scheduler()
    yield built
    built.close()


def test_the_foreground_comes_between_two_steps(scheduler: Scheduler) -> None:
    order: list[str] = []
    started, requested = threading.Event(), threading.Event()

    def work() -> Iterator[None]:
        order.append("first step")
        started.set()
        requested.wait(10)
        yield
        order.append("second step")

    scheduler.run_in_background("a", work)
    started.wait(10)
    threading.Timer(0.05, requested.set).start()
    with scheduler.foreground():
        order.append("now")
    assert scheduler.settle(10)
    assert order == ["first step", "now", "second step"]


def test_what_was_asked_for_last_goes_first_and_what_was_begun_goes_on(scheduler: Scheduler) -> None:
    order: list[str] = []
    gate, started = threading.Event(), threading.Event()

    def work(name: str) -> Iterator[None]:
        for number in (1, 2):
            order.append(f"{name}{number}")
            started.set()
            gate.wait(10)
            yield

    scheduler.run_in_background("a", lambda: work("a"))
    started.wait(10)
    scheduler.run_in_background("b", lambda: work("b"))
    scheduler.run_in_background("c", lambda: work("c"))
    scheduler.run_in_background("b", lambda: work("not begun again"))
    gate.set()
    assert scheduler.settle(10)
    assert order == ["a1", "b1", "b2", "c1", "c2", "a2"]


def test_of_many_pieces_the_oldest_are_given_up(scheduler: Scheduler) -> None:
    done: list[int] = []
    gate = threading.Event()

    def work(number: int) -> Iterator[None]:
        gate.wait(10)
        yield
        done.append(number)

    for number in range(MAX_JOBS + 3):
        scheduler.run_in_background(number, lambda number=number: work(number))
    gate.set()
    assert scheduler.settle(10)
    assert done == [*range(MAX_JOBS + 2, 2, -1)]


def test_a_piece_that_fails_is_logged_and_the_others_go_on(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def failing() -> Iterator[None]:
        yield
        raise ValueError("a reason")

    def working() -> Iterator[None]:
        done.append("b")
        yield

    with caplog.at_level(logging.ERROR):
        scheduler.run_in_background("a", failing)
        assert scheduler.settle(10)
        scheduler.run_in_background("b", working)
        assert scheduler.settle(10)
    assert "a reason" in caplog.text
    assert done == ["b"]


def test_nothing_begins_after_the_end() -> None:
    own_scheduler = Scheduler()
    own_scheduler.close()
    own_scheduler.run_in_background("a", lambda: iter(()))
    assert own_scheduler.settle(1)


def test_a_cache_forgets_the_least_recently_used_beyond_its_bound() -> None:
    cache = LRUCache(bound=100)
    for name in "abc":
        cache.put(name, torch.zeros(10))  # 40 bytes each
        cache.get("a")
    assert cache.get("a") is not None
    assert cache.get("b") is None
    assert cache.size == 80
    # once for each name, and nothing that is larger than the bound
    cache.put("a", torch.ones(5))
    assert cache.size == 60
    assert torch.equal(cache.get("a"), torch.ones(5))
    cache.put("a", torch.zeros(100))
    assert cache.get("a") is None
    assert cache.size == 40
