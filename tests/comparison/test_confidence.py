from __future__ import annotations

import numpy as np
import pytest

from attent.comparison.confidence import BLEU_OF_WORDS, EXACT_MATCH, estimate
from attent.tasks.translation.metrics import bleu

TRANSLATIONS = ["a man rides a horse .", "two dogs play in the snow .", "a girl", "the sea"] * 5
REFERENCES = ["a man is riding a horse .", "two dogs play in the snow .", "a small girl smiles .", "the sea"] * 5


@pytest.mark.parametrize("measure", [EXACT_MATCH, BLEU_OF_WORDS], ids=lambda measure: measure.name)
def test_the_sums_give_the_corpus_score_and_the_interval_holds_it(measure) -> None:
    found = estimate(measure, [measure.statistics(TRANSLATIONS, REFERENCES)])
    expected = 50.0 if measure is EXACT_MATCH else bleu(TRANSLATIONS, REFERENCES, "none").score
    assert found.score == pytest.approx(expected)
    assert found.low < found.score < found.high
    assert found.sentences == 20
    assert found.by_seed == (found.score,)


def test_of_one_kind_of_sentence_there_is_no_doubt() -> None:
    found = estimate(EXACT_MATCH, [EXACT_MATCH.statistics(["a"] * 9, ["a"] * 9)])
    assert (found.low, found.score, found.high) == (100.0, 100.0, 100.0)


def test_more_sentences_narrow_the_interval() -> None:
    few, many = (EXACT_MATCH.statistics(["a", "b"] * times, ["a", "a"] * times) for times in (10, 1000))
    widths = [one.high - one.low for one in (estimate(EXACT_MATCH, [few]), estimate(EXACT_MATCH, [many]))]
    # by the root of their number: 1.96·√(0.25/n) to either side
    assert widths == pytest.approx([2 * 196 * (0.25 / 20) ** 0.5, 2 * 196 * (0.25 / 2000) ** 0.5], rel=0.15)


def test_seeds_are_averaged_over_the_same_sentences() -> None:
    one, other = (EXACT_MATCH.statistics(made, ["a"] * 10) for made in (["a"] * 5 + ["b"] * 5, ["b"] * 5 + ["a"] * 5))
    found = estimate(EXACT_MATCH, [one, other])
    assert found.by_seed == (50.0, 50.0)
    # wherever one is wrong the other is right
    assert (found.low, found.high) == (50.0, 50.0)
    assert np.array_equal(one.sum(0), [5, 10])
