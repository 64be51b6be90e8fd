from __future__ import annotations

from attent.tasks.translation.pair_linker import random_halves


def test_halves_have_no_pair_in_common() -> None:
    first, second = random_halves(101)
    assert sorted(first + second) == list(range(101))
    assert len(first) == 50
    # neither the first half nor every other one
    assert 15 < sum(row < 50 for row in first) < 35
    assert 15 < sum(row % 2 for row in first) < 35
