"""How alike two strings are, as scores: the cosine of their character trigrams, or what a function says."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Score
from attent.errors import ArgumentError


class TrigramCosine(Score):
    """The cosine of two strings' counts of character trigrams, over a temperature: score(q, k) = cos(q, k) / τ.

    Damashek 1995, "Gauging Similarity with n-Grams". Letter case and the ways of writing one character do not count (NFKC, case
    folding); two spaces before and one behind let beginnings count more than ends. As few strings share few trigrams, only those that
    a string has are held.

    Args:
        texts: every string; queries and keys (B, H, T, 1) are given by their numbers in it.
        temperature: τ > 0; scores lie in [0, 1/τ].
        equal: what is added to the score of a string and itself.
    """

    def __init__(self, texts: Sequence[str], temperature: float, *, equal: float = 0.0) -> None:
        super().__init__()
        self.temperature, self.equal = temperature, equal
        known: dict[str, int] = {}
        counts = [_counts(text) for text in texts]
        which = [[known.setdefault(gram, len(known)) for gram in count] for count in counts]
        lengths = torch.tensor([len(grams) for grams in which], dtype=torch.int64)
        numbers = torch.tensor([number for count in counts for number in count.values()], dtype=torch.float64)
        squares = torch.zeros(len(texts), dtype=torch.float64).index_add_(
            0, torch.repeat_interleave(torch.arange(len(texts)), lengths), numbers.square()
        )
        self.grams = len(known)
        self._which = torch.tensor([gram for grams in which for gram in grams], dtype=torch.int64)
        self._shares = numbers / squares.sqrt().repeat_interleave(lengths)
        self._starts = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores (1, 1, Tq, Tk) of strings by their numbers, (1, 1, T, 1) each."""
        ours, theirs = (side[0, 0, :, 0].long() for side in (query, key))
        if not len(ours) or not len(theirs):
            return query.new_zeros(1, 1, len(ours), len(theirs))
        table = self._shares.new_zeros(self.grams, len(ours))
        which, shares, bags = self._of(ours)
        row = torch.repeat_interleave(torch.arange(len(ours)), bags)
        table[which, row] = shares
        which, shares, bags = self._of(theirs)
        begins = bags.cumsum(0) - bags
        products = F.embedding_bag(which, table, begins, mode="sum", per_sample_weights=shares)  # (Tk, Tq)
        scores = products.T / self.temperature + self.equal * (ours[:, None] == theirs)
        return scores[None, None].to(query.dtype)

    def _of(self, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The trigrams of some strings one after the other, their shares, and how many each has."""
        begins, lengths = self._starts[texts], self._starts[texts + 1] - self._starts[texts]
        before = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
        places = torch.arange(int(lengths.sum())) - before + torch.repeat_interleave(begins, lengths)
        return self._which[places], self._shares[places], lengths

    def extra_repr(self) -> str:
        """The temperature."""
        return f"temperature={self.temperature}"


class Alike(Score):
    """What a function says of two strings, over a temperature.

    Args:
        texts: every string; queries and keys (B, H, T, 1) are given by their numbers in it.
        function: (query, key) → a number, the larger the more alike.
        temperature: τ > 0.
    """

    def __init__(self, texts: Sequence[str], function: Callable[[str, str], float], temperature: float) -> None:
        super().__init__()
        self.texts, self.function, self.temperature = texts, function, temperature

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores (1, 1, Tq, Tk) of strings by their numbers, (1, 1, T, 1) each.

        Raises:
            ArgumentError: the function says something else than a finite number.
        """
        ours, theirs = ([self.texts[int(number)] for number in side[0, 0, :, 0].tolist()] for side in (query, key))
        scores = [[self._said(one, other) for other in theirs] for one in ours]
        return torch.tensor(scores, dtype=query.dtype).reshape(1, 1, len(ours), len(theirs)) / self.temperature

    def _said(self, query: str, key: str) -> float:
        said = self.function(query, key)
        try:
            number = float(said)
        except (TypeError, ValueError):
            number = float("nan")
        if not abs(number) < float("inf"):
            raise ArgumentError(f"a score of strings must be a finite number, got {said!r} for {query!r} and {key!r}")
        return number


def _counts(text: str) -> Counter[str]:
    padded = f"  {unicodedata.normalize('NFKC', text).casefold()} "
    return Counter(padded[place : place + 3] for place in range(len(padded) - 2))
