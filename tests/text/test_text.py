import dataclasses

import pytest

from attent.text.text import Gold, Pair, TranslationCorpus, add_tag


def test_a_pair_is_a_value() -> None:
    assert Pair("a", "b") == Pair("a", "b", ())
    assert len({Pair("a", "b", ((0, 0),)), Pair("a", "b", ((0, 0),)), Pair("a", "b")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair("a", "b").source = "c"  # type: ignore[misc]


def test_a_corpus_keeps_its_test_sets_in_order() -> None:
    corpus = TranslationCorpus([Pair("a", "b")], [], {"z": [], "a": [Pair("c", "d")]})
    assert list(corpus.held_out) == ["z", "a"]


def test_a_tag_stands_before_the_text() -> None:
    assert add_tag("fr", "mardi 3 mars 2026") == "fr | mardi 3 mars 2026"


def test_sure_links_are_possible_too() -> None:
    gold = Gold.of([(0, 0), (2, 1)], [(1, 1)])
    assert gold.sure == {(0, 0), (2, 1)}
    assert gold.possible == {(0, 0), (2, 1), (1, 1)}
    assert Gold.of([]) == Gold(frozenset(), frozenset())
