import pytest

from attent.data.disk_pairs import StoredPairs, WorkingFolder, store
from attent.data.readers import ReadReport
from attent.data.text import Pair
from attent.data.train_valid_split import split, without
from attent.errors import DataError


def stored(pairs: list[Pair]) -> tuple[StoredPairs, ReadReport]:
    return store(enumerate(pairs, start=1), WorkingFolder(), "pairs"), ReadReport("pairs.tsv", lines=len(pairs))


def different(count: int) -> list[Pair]:
    return [Pair(f"source {number}", f"target {number}") for number in range(count)]


@pytest.mark.parametrize(("count", "validated"), [(2, 1), (7, 1), (100, 5), (503, 25), (20_000, 1000), (20_011, 1000)])
def test_five_per_cent_validate_and_at_most_a_thousand(count: int, validated: int) -> None:
    pairs, report = stored(different(count))
    train, validation = split(pairs, 0, report)
    assert (len(train), len(validation)) == (count - validated, validated)
    assert sorted([*train, *validation], key=str) == sorted(pairs, key=str)
    assert report.kept == count


def test_the_seed_decides() -> None:
    pairs, report = stored(different(101))
    first, again, other = (list(split(pairs, seed, report)[1]) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_no_pair_trains_and_validates() -> None:
    pairs, report = stored(different(41) * 5)
    train, validation = split(pairs, 0, report)
    assert not set(train) & set(validation)
    shared = report.dropped["also in validation"]
    assert len(train) + len(validation) + shared.count == 205
    assert shared.count >= 4
    assert report.kept == len(train) + len(validation)


def test_a_shared_pair_is_the_same_on_both_sides() -> None:
    pairs, report = stored(different(7))
    validation = [Pair("source 2", "target 2"), Pair("source 3", "another"), Pair("more", "target 4")]
    assert list(without(pairs, validation, report)) == [pair for pair in different(7) if pair.source != "source 2"]
    assert report.summary() == ["pairs.tsv: 7 lines read, 6 kept", "  1 dropped: also in validation (line 3)"]


def test_too_few_pairs_are_an_error() -> None:
    with pytest.raises(DataError, match=r"pairs\.tsv: at least 2 pairs .* got 1"):
        split(*reversed_arguments(1))
    with pytest.raises(DataError, match=r"no pair is left to train on; .*also in validation"):
        pairs, report = stored(different(1) * 7)
        split(pairs, 0, report)


def reversed_arguments(count: int) -> tuple[StoredPairs, int, ReadReport]:
    pairs, report = stored(different(count))
    return pairs, 0, report
