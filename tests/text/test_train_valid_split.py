from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attent.errors import DataError
from attent.text.corpus import drop_shared, split, split_by_class
from attent.text.disk_texts import DiskTexts, TemporaryFolder, write_pairs
from attent.text.text import Pair, ReadReport


def stored(pairs: list[Pair]) -> tuple[DiskTexts[Pair], ReadReport]:
    return write_pairs(enumerate(pairs, start=1), TemporaryFolder(), "pairs"), ReadReport("pairs.tsv", lines=len(pairs))


def different(count: int) -> list[Pair]:
    return [Pair(f"source {number}", f"target {number}") for number in range(count)]


@pytest.mark.parametrize(("count", "validated"), [(2, 1), (503, 25), (20_011, 1000)])
def test_five_per_cent_validate_and_at_most_a_thousand(count: int, validated: int) -> None:
    pairs, report = stored(different(count))
    train, validation = split(pairs, 0, report)
    assert (len(train), len(validation)) == (count - validated, validated)
    assert sorted([*train, *validation], key=str) == sorted(pairs, key=str)
    assert report.kept_count == count


def test_no_pair_trains_and_validates() -> None:
    pairs, report = stored(different(41) * 5)
    train, validation = split(pairs, 0, report)
    assert not set(train) & set(validation)
    shared = report.dropped["also in validation"]
    assert len(train) + len(validation) + shared.count == 205
    assert shared.count >= 4
    assert report.kept_count == len(train) + len(validation)
    pairs, report = stored(different(7))
    validation, _ = stored([Pair("source 2", "target 2"), Pair("source 3", "another"), Pair("more", "target 4")])
    assert list(drop_shared(pairs, validation, report)) == [pair for pair in different(7) if pair.source != "source 2"]
    assert report.summary() == ["pairs.tsv: 7 lines read, 6 kept", "  1 dropped: also in validation (line 3)"]


def test_too_few_pairs_are_an_error() -> None:
    with pytest.raises(DataError, match=r"pairs\.tsv: at least 2 pairs .* got 1"):
        pairs, report = stored(different(1))
        split(pairs, 0, report)
    with pytest.raises(DataError, match=r"no pair is left to train on; .*also in validation"):
        pairs, report = stored(different(1) * 7)
        split(pairs, 0, report)


def test_a_share_above_zero_holds_out_an_example_if_a_class_has_several() -> None:
    assert [len(rows) for rows in split_by_class(np.array([0, 1, 1]), 0.1, 0)] == [2, 1]
    assert [len(rows) for rows in split_by_class(np.array([0, 1, 2]), 0.1, 0)] == [3, 0]


CLASSES = np.repeat([0, 1, 2, 3], [101, 53, 7, 1])


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_each_class_gives_its_share(share: float) -> None:
    left, saved = split_by_class(CLASSES, share, 0)
    assert sorted([*left, *saved]) == [*range(162)]
    assert len(saved) == round(share * 162)
    for number, count in enumerate(np.bincount(CLASSES)):
        of_class = int((CLASSES[saved] == number).sum())
        assert abs(of_class - share * count) < 1
        assert of_class < count


def test_the_seed_decides_and_the_order_of_classes_says_nothing_of_what_is_drawn() -> None:
    pairs, report = stored(different(101))
    draws: list[Callable[[int], list[Any]]] = [
        lambda seed: list(split(pairs, seed, report)[1]),
        lambda seed: split_by_class(CLASSES, 0.2, seed)[1].tolist(),
    ]
    for draw in draws:
        assert draw(3) == draw(3) != draw(4)
    drawn = {int(row) for seed in range(40) for row in split_by_class(CLASSES, 0.2, seed)[1]}
    assert drawn == set(range(161))  # the last is its class' only example
    assert len(split_by_class(CLASSES, 0.5, 0, limit=10)[1]) == 10
    assert len(split_by_class(CLASSES, 0.0, 0)[1]) == 0
