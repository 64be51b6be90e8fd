import dataclasses

import pytest

from attent.data.text import Pair, TranslationCorpus, tagged


def test_a_pair_is_a_value() -> None:
    assert Pair("a", "b") == Pair("a", "b", ())
    assert len({Pair("a", "b", ((0, 0),)), Pair("a", "b", ((0, 0),)), Pair("a", "b")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair("a", "b").source = "c"  # type: ignore[misc]


def test_a_corpus_keeps_its_test_sets_in_order() -> None:
    corpus = TranslationCorpus([Pair("a", "b")], [], {"z": [], "a": [Pair("c", "d")]})
    assert list(corpus.held_out) == ["z", "a"]


def test_a_tag_stands_before_the_text() -> None:
    assert tagged("fr", "mardi 3 mars 2026") == "fr | mardi 3 mars 2026"
