import pytest

from attent.alignment.error_rate import Agreement, agreement
from attent.errors import ArgumentError
from attent.text.text import Gold

GOLD = Gold.of([(0, 0), (1, 1)], [(2, 2), (2, 3)])


def test_worked_by_hand() -> None:
    counts = agreement([(0, 0), (2, 2), (2, 1), (2, 0)], GOLD)
    # of four links one is sure and two are possible; of two sure ones one is found
    assert counts == Agreement(predicted=4, sure=2, predicted_sure=1, predicted_possible=2)
    assert (counts.precision, counts.recall) == (0.5, 0.5)
    assert counts.error_rate == 1 - (1 + 2) / (4 + 2)


def test_the_ends_of_the_scale() -> None:
    # possible links need not be found, and may be
    for links in ([(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 3)]):
        assert agreement(links, GOLD).error_rate == 0
    assert agreement([(0, 1)], GOLD).error_rate == 1
    assert agreement([], GOLD).error_rate == 1
    assert (agreement([], GOLD).precision, agreement([], GOLD).recall) == (1, 0)
    assert agreement([(0, 0)], Gold.of([], [(0, 0)])).recall == 1
    assert agreement([(0, 0), (0, 0)], GOLD).predicted == 1
    with pytest.raises(ArgumentError, match="nothing to evaluate"):
        _ = agreement([], Gold.of([], [(0, 0)])).error_rate


def test_pairs_are_added_up_before_anything_is_divided() -> None:
    first, second = agreement([(0, 0)], GOLD), agreement([(5, 5), (6, 6), (1, 1)], GOLD)
    combined = first + second
    assert combined == Agreement(4, 4, 2, 2)
    assert combined.error_rate == 0.5
    assert combined.error_rate != (first.error_rate + second.error_rate) / 2
