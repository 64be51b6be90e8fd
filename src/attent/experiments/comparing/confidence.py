"""How sure a score is: an interval by resampling the sentences it was measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

RESAMPLES, LEVEL = 1000, 0.95
ORDERS = 4

# Numbers of each sentence, (n, k), whose sums decide a score.
Statistics = np.ndarray


@dataclass(frozen=True)
class Measure:
    """A score that is made of sums over sentences.

    Args:
        name: what it is called.
        statistics: translations and references → the numbers of each sentence.
        score: their sums (k,) → the score, 0 to 100.
    """

    name: str
    statistics: Callable[[Sequence[str], Sequence[str]], Statistics]
    score: Callable[[np.ndarray], float]


class Estimate(NamedTuple):
    """A score with its 95 % interval.

    Args:
        score: the mean over the seeds.
        low: where the interval begins.
        high: where it ends.
        sentences: how many it was measured on.
        by_seed: the score of each seed.
    """

    score: float
    low: float
    high: float
    sentences: int
    by_seed: tuple[float, ...]


def estimate(measure: Measure, by_seed: Sequence[Statistics], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The mean score of several seeds' models on the same sentences, and the interval that resampling these gives.

    Each resample draws as many sentences as there are, with replacement, the same for every seed (Koehn 2004, "Statistical
    Significance Tests for Machine Translation Evaluation", §3); the interval leaves 2.5 % of them on either side. It says how much
    the score depends on the sentences; how much on the seed, the seeds' own scores say.

    Args:
        measure: the score.
        by_seed: the sentences' statistics, one array for each seed, alike in shape, at least one sentence.
        resamples: how many.
        seed: of the draws.
    """
    together = np.stack(by_seed).astype(np.float64)  # (seeds, n, k)
    sentences = together.shape[1]
    times = np.random.default_rng(seed).multinomial(sentences, np.full(sentences, 1 / sentences), size=resamples)  # (resamples, n)
    sums = times @ together  # (seeds, resamples, k)
    means = np.mean([[measure.score(one) for one in of_seed] for of_seed in sums], axis=0)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    scores = tuple(float(measure.score(whole)) for whole in together.sum(1))
    return Estimate(float(np.mean(scores)), float(low), float(high), sentences, scores)


def _right(translations: Sequence[str], references: Sequence[str]) -> Statistics:
    return np.array(
        [[translation == reference, True] for translation, reference in zip(translations, references, strict=True)], dtype=float
    )


def _share(sums: np.ndarray) -> float:
    return 100 * float(sums[0] / sums[1])


def _counts(translations: Sequence[str], references: Sequence[str]) -> Statistics:
    """Of each sentence the n-grams that are right and all of them, by order, and the two lengths."""
    metric = BLEU(tokenize="none", force=True)
    found = [metric.corpus_score([one], [[other]]) for one, other in zip(translations, references, strict=True)]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in found], dtype=float)


def _bleu(sums: np.ndarray) -> float:
    whole = [round(number) for number in sums]
    counts, totals = whole[:ORDERS], whole[ORDERS : 2 * ORDERS]
    return BLEU.compute_bleu(counts, totals, whole[-2], whole[-1], smooth_method="exp").score


EXACT_MATCH = Measure("exact match", _right, _share)
# of text that is cut into words already
BLEU_OF_WORDS = Measure("BLEU", _counts, _bleu)
