from attent.data.text import Pair
from attent.training.samples import Sample, samples

PAIRS = [Pair(f"s{number}", f"t{number}") for number in range(9)]


def test_three_are_taken_evenly_and_the_same_every_time() -> None:
    taken = samples(PAIRS, [f"x{number}" for number in range(9)])
    assert [sample.source for sample in taken] == ["s1", "s4", "s7"]
    assert taken[0] == Sample("s1", "x1", "t1")


def test_fewer_where_there_are_fewer() -> None:
    assert [sample.source for sample in samples(PAIRS[:2], ["a", "b"])] == ["s0", "s1"]
    assert samples([], []) == []


def test_what_is_wrong_is_said_beside_it() -> None:
    assert str(Sample("s", "t", "t")) == "  s  →  t"
    assert str(Sample("s", "x", "t")) == "  s  →  x  (right: t)"
