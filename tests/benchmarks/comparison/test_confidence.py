import numpy as np
import pytest
from comparison.results import BLEU_OF_WORDS, EXACT_MATCH, estimate

from attent.tasks.translation.evaluation import bleu

TRANSLATIONS = ["a man rides a horse .", "two dogs play in the snow .", "a girl", "the sea"] * 5
REFERENCES = ["a man is riding a horse .", "two dogs play in the snow .", "a small girl smiles .", "the sea"] * 5


@pytest.mark.parametrize("measure", [EXACT_MATCH, BLEU_OF_WORDS], ids=lambda measure: measure.name)
def test_the_sums_give_the_corpus_score_and_the_interval_holds_it(measure) -> None:
    interval = estimate(measure, [measure.statistics(TRANSLATIONS, REFERENCES)])
    expected = 50.0 if measure is EXACT_MATCH else bleu(TRANSLATIONS, REFERENCES, "none").score
    assert interval.score == pytest.approx(expected)
    assert interval.low < interval.score < interval.high
    assert interval.sentences == 20
    assert interval.by_seed == (interval.score,)


def test_more_sentences_narrow_the_interval() -> None:
    small, large = (EXACT_MATCH.statistics(["a", "b"] * times, ["a", "a"] * times) for times in (10, 1000))
    widths = [item.high - item.low for item in (estimate(EXACT_MATCH, [small]), estimate(EXACT_MATCH, [large]))]
    # by the root of their number: 1.96·√(0.25/n) to either side
    assert widths == pytest.approx([2 * 196 * (0.25 / 20) ** 0.5, 2 * 196 * (0.25 / 2000) ** 0.5], rel=0.15)


def test_seeds_are_averaged_over_the_same_sentences() -> None:
    first, second = (
        EXACT_MATCH.statistics(outputs, ["a"] * 10) for outputs in (["a"] * 5 + ["b"] * 5, ["b"] * 5 + ["a"] * 5)
    )
    interval = estimate(EXACT_MATCH, [first, second])
    assert interval.by_seed == (50.0, 50.0)
    # wherever one is wrong the other is right
    assert (interval.low, interval.high) == (50.0, 50.0)
    assert np.array_equal(first.sum(0), [5, 10])
