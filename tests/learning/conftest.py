"""A check that a wrong function is told its usual mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attent.learning import check
from attent.learning.exercise import exercise


@pytest.fixture
def assert_named() -> Callable[[int, dict[str, Callable[..., Any]]], None]:
    """A function that checks that each function gets the sentence that begins as its key says, and no other."""

    def assert_named(number: int, functions: dict[str, Callable[..., Any]]) -> None:
        sentences = {mistake["why"] for mistake in exercise(number)["mistakes"]}
        assert len(functions) >= 10
        for beginning, function in functions.items():
            (expected,) = (sentence for sentence in sentences if sentence.startswith(beginning.rstrip("0123456789")))
            judgment = check(number, function)
            assert not judgment.is_right and not judgment.panels, beginning
            assert judgment.reason == expected, f"{beginning}\n{judgment}"
            assert expected in str(judgment)

    return assert_named
