from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from attent.explorer.scheduler import MAX_JOBS, Scheduler


@pytest.fixture
def turns() -> Iterator[Scheduler]:
    made = Scheduler()
    yield made
    made.close()


def test_whoever_is_waited_for_comes_between_two_steps(turns: Scheduler) -> None:
    order: list[str] = []
    begun, asked = threading.Event(), threading.Event()

    def work() -> Iterator[None]:
        order.append("first step")
        begun.set()
        asked.wait(10)
        yield
        order.append("second step")

    def waited_for() -> None:
        begun.wait(10)
        threading.Timer(0.05, asked.set).start()
        with turns.foreground():
            order.append("now")

    turns.run_in_background("a", work)
    waited_for()
    assert turns.settle(10)
    assert order == ["first step", "now", "second step"]


def test_what_was_asked_for_last_goes_first_and_what_was_begun_goes_on(turns: Scheduler) -> None:
    order: list[str] = []
    gate, begun = threading.Event(), threading.Event()

    def work(name: str) -> Iterator[None]:
        for number in (1, 2):
            order.append(f"{name}{number}")
            begun.set()
            gate.wait(10)
            yield

    turns.run_in_background("a", lambda: work("a"))
    begun.wait(10)
    turns.run_in_background("b", lambda: work("b"))
    turns.run_in_background("c", lambda: work("c"))
    turns.run_in_background("b", lambda: work("not begun again"))
    gate.set()
    assert turns.settle(10)
    assert order == ["a1", "b1", "b2", "c1", "c2", "a2"]


def test_of_many_pieces_the_oldest_are_given_up(turns: Scheduler) -> None:
    done: list[int] = []
    gate = threading.Event()

    def work(number: int) -> Iterator[None]:
        gate.wait(10)
        yield
        done.append(number)

    for number in range(MAX_JOBS + 3):
        turns.run_in_background(number, lambda number=number: work(number))
    gate.set()
    assert turns.settle(10)
    assert done == [*range(MAX_JOBS + 2, 2, -1)]


def test_a_piece_that_fails_is_logged_and_the_others_go_on(turns: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def failing() -> Iterator[None]:
        yield
        raise ValueError("a reason")

    def working() -> Iterator[None]:
        done.append("b")
        yield

    with caplog.at_level(logging.ERROR):
        turns.run_in_background("a", failing)
        assert turns.settle(10)
        turns.run_in_background("b", working)
        assert turns.settle(10)
    assert "a reason" in caplog.text
    assert done == ["b"]


def test_nothing_begins_after_the_end() -> None:
    turns = Scheduler()
    turns.close()
    turns.run_in_background("a", lambda: iter(()))
    assert turns.settle(1)
