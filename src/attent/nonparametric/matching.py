"""Matching queries and keys: a mask of equal ones, and scores of similar strings."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import KeyRange, Mask, Pairs, Score
from attent.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Equal(Mask):
    """A query sees the keys that equal it: key == query.

    Args:
        query: (Tq,) a number for each distinct thing; a negative one equals nothing.
        key: (Tk,) likewise.
    """

    query: Tensor
    key: Tensor

    @classmethod
    def of(cls, queries: Sequence[Hashable], keys: Sequence[Hashable]) -> Equal:
        """Return the mask of things that compare by equality; NaN, which does not equal itself, equals nothing."""
        keys, queries = (tuple(map(_day, side)) for side in (keys, queries))
        numbers: dict[Hashable, int] = {}
        key = [numbers.setdefault(item, len(numbers)) if item == item else -2 for item in keys]
        query = [numbers.get(item, -1) if item == item else -1 for item in queries]
        return cls(torch.tensor(query, dtype=torch.int64), torch.tensor(key, dtype=torch.int64))

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return (1, 1, Tq, Tk), True where key and query are equal."""
        return (self.query[pairs.query_index][:, None] == self.key[pairs.key_index])[None, None]

    def key_range(self, pairs: Pairs) -> KeyRange:
        """From the first of the equal keys to the last."""
        first, last = self._ends
        # −1, a query that equals nothing, indexes the last entry
        query = self.query[pairs.query_index]
        return KeyRange(first[query][None, None, :, None], last[query][None, None, :, None] + 1, exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor:
        """Return the keys that equal any of these queries."""
        return torch.isin(self.key, self.query[pairs.query_index])

    @property
    def has_match(self) -> Tensor:
        """(Tq,), True where any key equals the query."""
        return torch.isin(self.query, self.key)

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """The first and the last key of each distinct thing.

        A further entry, for what equals nothing, has its last before its first.
        """
        index = torch.arange(len(self.key))
        is_valid = self.key >= 0
        key, index = self.key[is_valid], index[is_valid]
        count = int(key.max()) + 2 if len(key) else 1
        first = torch.full((count,), len(self.key)).scatter_reduce(0, key, index, "amin")
        last = torch.full((count,), -1).scatter_reduce(0, key, index, "amax")
        return first, last

    def __repr__(self) -> str:
        return f"Equal({len(self.query)} queries, {len(self.key)} keys)"


class TrigramCosine(Score):
    """The cosine of two strings' counts of character trigrams, over a temperature: score(q, k) = cos(q, k) / τ.

    Damashek 1995, "Gauging Similarity with n-Grams". Letter case and the encoding of a character do not count (NFKC,
    case folding); two spaces before a string and one after it give its beginning more weight than its end. Counts are
    stored sparsely, as few strings share few trigrams.

    Args:
        texts: the strings; queries and keys (B, H, T, 1) are indices into them.
        temperature: τ > 0; scores lie in [0, 1/τ].
        equal: the bonus added to the score of a string with itself.
    """

    def __init__(self, texts: Sequence[str], temperature: float, *, equal: float = 0.0) -> None:
        super().__init__()
        self.temperature, self.equal = temperature, equal
        vocabulary: dict[str, int] = {}
        counts = [_trigrams(text) for text in texts]
        self._trigram_ids = torch.tensor(
            [vocabulary.setdefault(trigram, len(vocabulary)) for count in counts for trigram in count],
            dtype=torch.int64,
        )
        self.vocabulary_size = len(vocabulary)
        lengths = torch.tensor([len(count) for count in counts], dtype=torch.int64)
        numbers = torch.tensor([number for count in counts for number in count.values()], dtype=torch.float64)
        text_index = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        squares = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, text_index, numbers.square())
        self._weights = numbers / squares.sqrt()[text_index]
        self._offsets = F.pad(lengths.cumsum(0), (1, 0))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (1, 1, Tq, Tk) of strings given by index, (1, 1, T, 1) each."""
        query_index, key_index = (index[0, 0, :, 0].long() for index in (query, key))
        if not len(query_index) or not len(key_index):
            return query.new_zeros(1, 1, len(query_index), len(key_index))
        table = self._weights.new_zeros(self.vocabulary_size, len(query_index))
        trigram_ids, weights, lengths = self._bags(query_index)
        table[trigram_ids, torch.repeat_interleave(torch.arange(len(query_index)), lengths)] = weights
        trigram_ids, weights, lengths = self._bags(key_index)
        cosines = F.embedding_bag(
            trigram_ids, table, lengths.cumsum(0) - lengths, mode="sum", per_sample_weights=weights
        )  # (Tk, Tq)
        scores = cosines.T / self.temperature + self.equal * (query_index[:, None] == key_index)
        return scores[None, None].to(query.dtype)

    def _bags(self, text_index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the trigrams of strings, one string after the other, their weights, and each string's number."""
        offsets = self._offsets[text_index]
        lengths = self._offsets[text_index + 1] - offsets
        shift = torch.repeat_interleave(offsets - (lengths.cumsum(0) - lengths), lengths)
        index = torch.arange(len(shift)) + shift
        return self._trigram_ids[index], self._weights[index], lengths

    def extra_repr(self) -> str:
        """Return the temperature."""
        return f"temperature={self.temperature}"


class StringScore(Score):
    """The number that a function gives two strings, over a temperature.

    Args:
        texts: the strings; queries and keys (B, H, T, 1) are indices into them.
        function: (query, key) → a number, larger for more similar strings.
        temperature: τ > 0.
    """

    def __init__(self, texts: Sequence[str], function: Callable[[str, str], float], temperature: float) -> None:
        super().__init__()
        self.texts, self.function, self.temperature = texts, function, temperature

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (1, 1, Tq, Tk) of strings given by index, (1, 1, T, 1) each.

        Raises:
            ArgumentError: the function returns something other than a finite number.
        """
        queries, keys = ([self.texts[int(index)] for index in side[0, 0, :, 0].tolist()] for side in (query, key))
        scores = [[self._score(query_text, key_text) for key_text in keys] for query_text in queries]
        return torch.tensor(scores, dtype=query.dtype).reshape(1, 1, len(queries), len(keys)) / self.temperature

    def _score(self, query: str, key: str) -> float:
        score = self.function(query, key)
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ArgumentError(f"a score of strings must be a finite number, got {score!r} for {query!r} and {key!r}")
        return number


def _day(item: Any) -> Any:
    """Return the date in the place of its midnight, by which tables write dates; other things as they are."""
    # pandas' NaT, a datetime of no day, does not equal itself
    if not isinstance(item, datetime) or item.tzinfo is not None or item != item:
        return item
    return item.date() if item == datetime.combine(item.date(), time()) else item


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {unicodedata.normalize('NFKC', text).casefold()} "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))
