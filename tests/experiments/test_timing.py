from __future__ import annotations

import pytest

from attent.experiments.timing import milliseconds, time_in_turn


def test_sides_take_turns_and_the_first_call_of_each_turn_does_not_count() -> None:
    calls: list[str] = []
    found = time_in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b", *("aaaabbbb") * 2]
    assert set(found) == {"a", "b"}


def test_the_least_and_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    takes = iter([0.5, 0.5, 0.03, 0.01, 0.02])

    def work() -> None:
        clock[0] += next(takes)

    monkeypatch.setattr("attent.experiments.timing.time.perf_counter", lambda: clock[0])
    found = time_in_turn({"only": work}, rounds=1)["only"]
    assert found == pytest.approx((10, 20))


def test_no_round_begins_after_the_time_but_three_always_do() -> None:
    calls: list[int] = []
    milliseconds({"only": lambda: calls.append(1)}, rounds=50, seconds=0.0)
    assert len(calls) == 1 + 3 * 4
