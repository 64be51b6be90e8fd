"""Confidence intervals of scores, by resampling the sentences on which they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

RESAMPLES, LEVEL = 1000, 0.95
ORDERS = 4

# Numbers of each sentence, (n, k), whose sums decide a score.
Statistics = np.ndarray


@dataclass(frozen=True)
class Measure:
    """A score that is computed from sums over sentences.

    Args:
        name: of the score.
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
        low: lower end of the interval.
        high: upper end of the interval.
        sentences: the number of test sentences.
        by_seed: the score of each seed.
    """

    score: float
    low: float
    high: float
    sentences: int
    by_seed: tuple[float, ...]

    def __str__(self) -> str:
        """The score, its interval, and the score of each seed if there are several."""
        seeds = f" ({', '.join(f'{score:.1f}' for score in self.by_seed)})" if len(self.by_seed) > 1 else ""
        return f"{self.score:.1f} [{self.low:.1f}, {self.high:.1f}]{seeds}"


def estimate(measure: Measure, by_seed: Sequence[Statistics]) -> Estimate:
    """Estimate the mean score of several seeds' models on the same sentences, with an interval by resampling these.

    Each resample draws as many sentences as there are, with replacement, the same for every seed (Koehn 2004,
    "Statistical Significance Tests for Machine Translation Evaluation", §3); the interval leaves out 2.5 % of them on
    either side. The interval shows how much the score depends on the sentences; the scores of the seeds show how much
    it depends on the seed.

    Args:
        measure: the score.
        by_seed: the sentences' statistics, one array for each seed, all of the same shape, at least one sentence.
    """
    statistics = np.stack(by_seed).astype(np.float64)  # (seeds, n, k)
    sentences = statistics.shape[1]
    counts = np.random.default_rng(0).multinomial(
        sentences, np.full(sentences, 1 / sentences), size=RESAMPLES
    )  # (resamples, n)
    sums = counts @ statistics  # (seeds, resamples, k)
    means = np.mean([[measure.score(draw) for draw in draws] for draws in sums], axis=0)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    scores = tuple(float(measure.score(total)) for total in statistics.sum(1))
    return Estimate(float(np.mean(scores)), float(low), float(high), sentences, scores)


def _match_statistics(translations: Sequence[str], references: Sequence[str]) -> Statistics:
    pairs = zip(translations, references, strict=True)
    return np.array([[translation == reference, True] for translation, reference in pairs], dtype=float)


def _bleu_statistics(translations: Sequence[str], references: Sequence[str], *, tokenize: str) -> Statistics:
    """Return matches and totals of the n-grams of each sentence, by order, and the two lengths."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize, force=True)
    scores = [
        metric.corpus_score([translation], [[reference]])
        for translation, reference in zip(translations, references, strict=True)
    ]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], dtype=float)


def _bleu(sums: np.ndarray) -> float:
    from sacrebleu.metrics.bleu import BLEU

    totals = [round(number) for number in sums]
    return BLEU.compute_bleu(
        totals[:ORDERS], totals[ORDERS : 2 * ORDERS], totals[-2], totals[-1], smooth_method="exp"
    ).score


EXACT_MATCH = Measure("exact match", _match_statistics, lambda sums: 100 * float(sums[0] / sums[1]))
# for text that is split into words already
BLEU_OF_WORDS = Measure("BLEU", partial(_bleu_statistics, tokenize="none"), _bleu)
# for text as it was written
BLEU = Measure("BLEU", partial(_bleu_statistics, tokenize="13a"), _bleu)
