from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.alignment.symmetrization import METHODS, symmetrize
from attent.errors import UnknownNameError

FORWARD = {(0, 0), (1, 1), (2, 1), (4, 0)}
BACKWARD = {(0, 0), (1, 1), (1, 2), (3, 4)}
ALIGNMENTS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("intersection", set()),
        # (2, 1) and (1, 2) touch (1, 1), and source word 2 and target word 2 had no link
        ("grow-diag", {(2, 1), (1, 2)}),
        # (3, 4) touches nothing, but neither of its words has a link; of (4, 0) only the source word has none
        ("grow-diag-final-and", {(2, 1), (1, 2), (3, 4)}),
        ("grow-diag-final", {(2, 1), (1, 2), (3, 4), (4, 0)}),
        ("union", {(2, 1), (1, 2), (3, 4), (4, 0)}),
    ],
)
def test_worked_by_hand(method: str, more: set[tuple[int, int]]) -> None:
    assert symmetrize(FORWARD, BACKWARD, method) == sorted({(0, 0), (1, 1)} | more)


def test_links_grow_on_but_not_of_words_that_both_have_some() -> None:
    chain = {(position, position) for position in range(4)}
    assert symmetrize({(0, 0)}, chain, "grow-diag") == sorted(chain)
    assert symmetrize({(3, 3)}, chain, "grow-diag") == sorted(chain)
    assert symmetrize({(0, 0)}, chain - {(1, 1)}, "grow-diag") == [(0, 0)]
    for method in ("grow-diag", "grow-diag-final", "grow-diag-final-and"):
        assert symmetrize({(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}, method) == [(0, 0), (1, 1)]
    # the first alignment finishes before the second: each takes the other's target word away
    assert symmetrize({(0, 5)}, {(3, 5)}, "grow-diag-final-and") == [(0, 5)]
    assert symmetrize({(3, 5)}, {(0, 5)}, "grow-diag-final-and") == [(3, 5)]


@given(ALIGNMENTS, ALIGNMENTS)
def test_each_way_takes_more_than_the_one_before(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> None:
    values = {method: set(symmetrize(first, second, method)) for method in METHODS}
    assert values["intersection"] == first & second
    assert values["union"] == first | second
    assert all(symmetrize(first, first, method) == sorted(first) for method in METHODS)
    assert values["intersection"] <= values["grow-diag"] <= values["grow-diag-final-and"] <= values["union"]
    assert values["grow-diag"] <= values["grow-diag-final"] <= values["union"]
    # whatever has a link in either alignment has one in the end
    for side in (0, 1):
        assert {link[side] for link in values["grow-diag-final"]} == {link[side] for link in first | second}


def test_an_unknown_way_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'grow-diag-final-and'"):
        symmetrize((), (), "grow-diag-final-adn")
