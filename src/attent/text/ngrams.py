"""N-gram baseline: predicts a word from counts of one, two or three consecutive words, without a neural network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attent.text.tokenizer import BOS, EOS

# Three token ids must fit into one int64.
MAX_VOCABULARY = 2**21


class Counts:
    """Counts of distinct numbers.

    Args:
        numbers: integers, (N,).
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.values, self.counts = np.unique(numbers, return_counts=True)

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the count of each number, (…); 0 for a number that did not occur."""
        indices, is_counted = self.index(numbers)
        return np.where(is_counted, self.counts[indices], 0) if len(self.values) else np.zeros(np.shape(numbers))

    def index(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the index of each number in `values` and whether `values` contains it."""
        indices = np.minimum(np.searchsorted(self.values, numbers), max(len(self.values) - 1, 0))
        return indices, self.values[indices] == numbers if len(self.values) else np.zeros(np.shape(numbers), bool)

    @property
    def discount(self) -> float:
        """Return n₁ / (n₁ + 2 n₂), where n₁ and n₂ numbers occurred once and twice; ½ if n₁ is 0."""
        once, twice = (int((self.counts == times).sum()) for times in (1, 2))
        return once / (once + 2 * twice) if once else 0.5


class Trigrams:
    """An interpolated Kneser–Ney trigram model.

        p(w | u v) = max(c(u v w) − D₃, 0) / c(u v ·) + D₃ N₁₊(u v ·) / c(u v ·) · p(w | v)
        p(w | v)   = the same with N₁₊(· v w), the number of distinct words before v w, in place of c
        p(w)       = the same with N₁₊(· w), interpolated with 1 / V

    A line is preceded by two BOS and ends with EOS.

    Source: Kneser & Ney (1995), doi 10.1109/ICASSP.1995.479394, interpolated as in Chen & Goodman (1999), eq. 22–24,
    doi 10.1006/csla.1999.0128, with the discounts of Ney et al. (1994), doi 10.1006/csla.1994.1001.

    Args:
        lines: the token ids of each line.
        size: the number of ids, V.

    Raises:
        ValueError: the vocabulary is too large.
    """

    def __init__(self, lines: Iterable[Sequence[int]], size: int) -> None:
        if size > MAX_VOCABULARY:
            raise ValueError(f"at most {MAX_VOCABULARY:,} ids can be counted, got {size:,}")
        self.size = size
        padded = [np.array([BOS, BOS, *line, EOS], np.int64) for line in lines]
        trigrams = np.concatenate(
            [(line[:-2] * size + line[1:-1]) * size + line[2:] for line in padded] or [np.zeros(0, np.int64)]
        )
        words = np.concatenate([line[2:] for line in padded] or [np.zeros(0, np.int64)])
        self.unigrams = np.bincount(words, minlength=size).astype(np.float64)
        self._trigrams = Counts(trigrams)
        bigrams = self._trigrams.values % size**2
        self._bigrams, self._histories = Counts(bigrams), Counts(trigrams // size)
        # number of distinct words after two words, after one and overall; sorted like the counts
        self._after_two = np.unique(self._trigrams.values // size, return_counts=True)[1]
        self._after_one = np.bincount(self._bigrams.values // size, minlength=size)
        self._totals = np.bincount(bigrams // size, minlength=size)
        second_words = Counts(self._bigrams.values % size)
        counts = np.bincount(self._bigrams.values % size, minlength=size)
        kinds, uniform = np.full(size, len(second_words.values)), np.full(size, 1 / size)
        self._words = _interpolate(counts, second_words.discount, np.full(size, counts.sum()), kinds, uniform)

    def probability(self, first: np.ndarray | int, second: np.ndarray | int, third: np.ndarray | int) -> np.ndarray:
        """Return p(third | first second) for ids whose shapes broadcast."""
        second, third = np.asarray(second), np.asarray(third)
        counts = self._bigrams.of(second * self.size + third)
        backoff = _interpolate(
            counts, self._bigrams.discount, self._totals[second], self._after_one[second], self._words[third]
        )
        history = np.asarray(first) * self.size + second
        indices, is_counted = self._histories.index(history)
        if not is_counted.any():
            return np.broadcast_to(backoff, np.broadcast_shapes(np.shape(backoff), history.shape))
        totals, kinds = (
            np.where(is_counted, numbers[indices], 0) for numbers in (self._histories.counts, self._after_two)
        )
        return _interpolate(
            self._trigrams.of(history * self.size + third), self._trigrams.discount, totals, kinds, backoff
        )

    def left_context(self, line: Sequence[int], index: int) -> np.ndarray:
        """Return p(w | the two previous words) for every id w at an index of a line, (V,)."""
        first, second = ([BOS, BOS, *line[:index]])[-2:]
        return self.probability(first, second, np.arange(self.size))

    def both_contexts(self, line: Sequence[int], index: int) -> np.ndarray:
        """Return p(w | the two previous and the two following words) for every id w at an index of a line, (V,).

        This is p(w | u v) · p(x | v w) · p(y | w x), normalized over w: proportional to the probability of the whole
        line with w.
        """
        before, after = [BOS, BOS, *line[:index]][-2:], [*line[index + 1 :], EOS][:2]
        ids = np.arange(self.size)
        probs = self.left_context(line, index) * self.probability(before[1], ids, after[0])
        if len(after) > 1:
            probs = probs * self.probability(ids, after[0], after[1])
        return probs / probs.sum()


def _interpolate(
    counts: np.ndarray, discount: float, totals: np.ndarray, kinds: np.ndarray, backoff: np.ndarray
) -> np.ndarray:
    """Discount the counts of words after a history, and distribute the freed probability by the shorter history.

    Args:
        counts: the count of each word after its history.
        discount: the amount subtracted from each count.
        totals: the count of each history.
        kinds: the number of distinct words after each history.
        backoff: the probability given the shorter history; returned if the history never occurred.
    """
    probs = (np.maximum(counts - discount, 0) + discount * kinds * backoff) / np.maximum(totals, 1)
    return np.where(totals > 0, probs, backoff)
