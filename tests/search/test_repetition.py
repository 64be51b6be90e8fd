from __future__ import annotations

import pytest

from attent.search.constraints import is_repetitive


@pytest.mark.parametrize("loop", [[7], [7, 8], [4, 5, 6, 7, 8]])
def test_a_loop_is_repetitive_however_it_begins(loop: list[int]) -> None:
    assert is_repetitive([1, 2, 3, *(loop * 30)])


@pytest.mark.parametrize(
    "tokens", [[], [7] * 14, range(60), [*range(20), *range(20)], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]]
)
def test_a_text_that_says_something_twice_is_not(tokens: list[int]) -> None:
    assert not is_repetitive(tokens)
