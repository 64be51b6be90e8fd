"""Counts of words as a yardstick: how well a word is guessed without any network, from one, two or three words in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attent.data.tokenizer import BOS, EOS

# Three token ids have to fit one whole number.
MOST = 2**21


class Counts:
    """How often each number occurs.

    Args:
        numbers: any, (N,).
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.known, self.counts = np.unique(numbers, return_counts=True)

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """How often each of these occurred, (…); 0 for what never did."""
        places, there = self.index(numbers)
        return np.where(there, self.counts[places], 0) if len(self.known) else np.zeros(np.shape(numbers))

    def index(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each of these stands in `known`, or would, and whether it is there."""
        places = np.minimum(np.searchsorted(self.known, numbers), max(len(self.known) - 1, 0))
        return places, self.known[places] == numbers if len(self.known) else np.zeros(np.shape(numbers), bool)

    @property
    def discount(self) -> float:
        """What is taken from every count: n₁ / (n₁ + 2 n₂), n being how many occurred once and twice; ½ where none did once."""
        once, twice = (int((self.counts == times).sum()) for times in (1, 2))
        return once / (once + 2 * twice) if once else 0.5


class Trigrams:
    """An interpolated Kneser–Ney model of three words in a row.

        p(w | u v) = max(c(u v w) − D₃, 0) / c(u v ·) + D₃ N₁₊(u v ·) / c(u v ·) · p(w | v)
        p(w | v)   = the same of N₁₊(· v w), how many words stand before v w, in the place of c
        p(w)       = the same of N₁₊(· w), above 1 / V

    A line begins behind two BOS tokens and ends with an EOS.

    Source: Kneser & Ney (1995), doi 10.1109/ICASSP.1995.479394, interpolated as in Chen & Goodman (1999), eq. 22–24,
    doi 10.1006/csla.1999.0128; the discounts of Ney et al. (1994), doi 10.1006/csla.1994.1001.

    Args:
        lines: what is counted, as token ids.
        size: how many ids there are, V.

    Raises:
        ValueError: there are more ids than three of them can be told apart.
    """

    def __init__(self, lines: Iterable[Sequence[int]], size: int) -> None:
        if size > MOST:
            raise ValueError(f"at most {MOST:,} ids can be counted, got {size:,}")
        self.size = size
        ends = [np.array([BOS, BOS, *line, EOS], np.int64) for line in lines]
        threes = np.concatenate([(one[:-2] * size + one[1:-1]) * size + one[2:] for one in ends] or [np.zeros(0, np.int64)])
        words = np.concatenate([one[2:] for one in ends] or [np.zeros(0, np.int64)])
        self.unigrams = np.bincount(words, minlength=size).astype(np.float64)
        self._threes = Counts(threes)
        pairs = self._threes.known % size**2
        self._twos, self._histories = Counts(pairs), Counts(threes // size)
        # how many different words were seen behind two, behind one, and at all; what is known is sorted alike
        self._after_two = np.unique(self._threes.known // size, return_counts=True)[1]
        self._after_one = np.bincount(self._twos.known // size, minlength=size)
        self._total = np.bincount(pairs // size, minlength=size)
        ones = np.bincount(self._twos.known % size, minlength=size)
        counted = Counts(self._twos.known % size)
        kinds, every = np.full(size, len(counted.known)), np.full(size, 1 / size)
        self._words = _interpolated(ones, counted.discount, np.full(size, ones.sum()), kinds, every)
        self._discounts = self._twos.discount, self._threes.discount

    def probability(self, first: np.ndarray | int, second: np.ndarray | int, third: np.ndarray | int) -> np.ndarray:
        """p(third | first second) of ids whose shapes fit together."""
        second, third = np.asarray(second), np.asarray(third)
        two, three = self._discounts
        seen = self._twos.of(second * self.size + third)
        below = _interpolated(seen, two, self._total[second], self._after_one[second], self._words[third])
        history = np.asarray(first) * self.size + second
        places, there = self._histories.index(history)
        if not there.any():
            return np.broadcast_to(below, np.broadcast_shapes(np.shape(below), history.shape))
        total, kinds = (np.where(there, numbers[places], 0) for numbers in (self._histories.counts, self._after_two))
        return _interpolated(self._threes.of(history * self.size + third), three, total, kinds, below)

    def left_context(self, line: Sequence[int], place: int) -> np.ndarray:
        """p(w | the two words before a place), of every id w, (V,)."""
        first, second = ([BOS, BOS, *line[:place]])[-2:]
        return self.probability(first, second, np.arange(self.size))

    def both_contexts(self, line: Sequence[int], place: int) -> np.ndarray:
        """The same with the two words behind it as well, normalised, (V,).

        p(w | u v) · p(x | v w) · p(y | w x), which is what the model gives the whole line with w there, among all w.
        """
        before, behind = [BOS, BOS, *line[:place]][-2:], [*line[place + 1 :], EOS][:2]
        every = np.arange(self.size)
        found = self.left_context(line, place) * self.probability(before[1], every, behind[0])
        if len(behind) > 1:
            found = found * self.probability(every, behind[0], behind[1])
        return found / found.sum()


def _interpolated(seen: np.ndarray, discount: float, total: np.ndarray, kinds: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Counts behind a history, discounted, and what was taken from them spread as the shorter history says.

    Args:
        seen: how often each word occurred behind its history.
        discount: what is taken from each.
        total: how often each history occurred.
        kinds: how many different words followed it.
        below: the probability by the shorter history; alone where the history never occurred.
    """
    found = (np.maximum(seen - discount, 0) + discount * kinds * below) / np.maximum(total, 1)
    return np.where(total > 0, found, below)
