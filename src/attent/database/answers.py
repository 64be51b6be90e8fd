"""What a look-up found: values, the weights they come of, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError
from attent.views.labels import cut, padded, width
from attent.views.panel import Panel

# Queries and values that are printed, and the columns of a label; weights less than this are not printed.
SHOWN, EACH, LABEL, LEAST = 20, 4, 32, 0.005
# Weights at a time, while the likeliest values are looked for.
TILE = 2**20


class Vote(NamedTuple):
    """One key's part in an answer."""

    key: Any
    value: Any
    weight: float


@dataclass(frozen=True, repr=False)
class Answer:
    """What a database says to some queries; printed, a line each.

    Args:
        queries: what was asked.
        keys: of the database.
        entries: the value of each key, hashable.
        weights: how much each key (columns) counts for each query (rows), as a lazy matrix (Tq, Tk).
        found: (Tq,) whether any key answers.
        mean: (Tq, …) the mean of the values where these are numbers, NaN where no key answers; None of other values.
    """

    queries: tuple[Any, ...]
    keys: tuple[Any, ...]
    entries: tuple[Any, ...]
    weights: AttentionMap
    found: Tensor
    mean: Tensor | None = None

    @property
    def missing(self) -> list[Any]:
        """The queries that no key answers."""
        return [query for query, found in zip(self.queries, self.found.tolist(), strict=True) if not found]

    @property
    def values(self) -> Tensor | list[Any]:
        """The answers: of numbers their mean, (Tq, …), NaN where missing; of other values the likeliest, None where missing."""
        return self.likeliest if self.mean is None else self.mean

    @property
    def value(self) -> Any:
        """The answer to the only query.

        Raises:
            ArgumentError: there were several queries, or none.
        """
        if len(self) != 1:
            raise ArgumentError(f"value is the answer to one query, and there are {len(self)}: see values")
        return self.likeliest[0] if self.mean is None else self.mean[0].tolist()

    @cached_property
    def likeliest(self) -> list[Any]:
        """For each query the value of most weight, the first of equals; None where no key answers."""
        distinct, best = list(self._numbers), list[int]()
        for first in range(0, len(self), step := max(TILE // max(len(self.keys), 1), 1)):
            shares = self._shares(torch.arange(first, min(first + step, len(self))))
            best += shares.argmax(-1).tolist() if distinct else [0] * len(shares)
        return [distinct[place] if found else None for place, found in zip(best, self.found.tolist(), strict=True)]

    def distribution(self, query: int = 0) -> dict[Any, float]:
        """How much each distinct value counts for a query, the most first; empty where no key answers.

        Args:
            query: its place among the queries.

        Raises:
            ArgumentError: there is no such query.
        """
        shares = self._shares(self._row(query))[0]
        order = shares.argsort(descending=True, stable=True).tolist()
        distinct = list(self._numbers)
        return {distinct[place]: shares[place].item() for place in order if shares[place] > 0}

    def votes(self, query: int = 0, n: int = 5) -> list[Vote]:
        """The n keys that count most for a query, the most first; fewer where others have no weight.

        Args:
            query: its place among the queries.
            n: how many, ≥ 1.

        Raises:
            ArgumentError: there is no such query, or n is less than one.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ArgumentError(f"n must be a whole number ≥ 1, got {n!r}")
        weights = self.weights.rows(self._row(query))[0, 0, 0]
        order = weights.argsort(descending=True, stable=True)[:n].tolist()
        return [Vote(self.keys[place], self.entries[place], weights[place].item()) for place in order if weights[place] > 0]

    def panel(self) -> Panel:
        """The weights with their labels, for any view, such as `attent.views.picture.picture`."""
        labels = (tuple(str(item) for item in side) for side in (self.queries, self.keys))
        return Panel(self.weights.dense(), *labels, title="weights", reading="row: a query · columns: keys")

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values if self.mean is None else self.mean.tolist())

    def __repr__(self) -> str:
        shown = [cut(str(query), LABEL) for query in self.queries[:SHOWN]]
        margin = max(map(width, shown), default=0)
        lines = [f"{padded(label, margin, left=True)} → {self._said(place)}" for place, label in enumerate(shown)]
        if len(self) > SHOWN:
            lines.append(f"… and {len(self) - SHOWN} more")
        return "\n".join(lines) if lines else "(no queries)"

    def _said(self, place: int) -> str:
        if not self.found[place]:
            return "missing: no such key" if self.keys else "missing: there are no keys"
        if self.mean is not None:
            votes = ", ".join(f"{vote.key} {vote.weight:.2f}" for vote in self.votes(place, EACH) if vote.weight >= LEAST)
            mean = self.mean[place].tolist()
            return f"{_number(mean)}  (keys: {votes})"
        shares = [(value, share) for value, share in self.distribution(place).items() if share >= LEAST]
        text = ", ".join(f"{cut(str(value), LABEL)} {share:.2f}" for value, share in shares[:EACH])
        return text + (f" and {len(shares) - EACH} more" if len(shares) > EACH else "")

    def _row(self, query: int) -> Tensor:
        if isinstance(query, bool) or not isinstance(query, int) or not 0 <= query < len(self):
            raise ArgumentError(f"query must be the place of one of {len(self)} queries, from 0, got {query!r}")
        return torch.tensor([query])

    def _shares(self, rows: Tensor) -> Tensor:
        """The weight of each distinct value for some queries, (rows, distinct)."""
        weights = self.weights.rows(rows)[0, 0]
        which = torch.tensor([self._numbers[value] for value in self.entries], dtype=torch.int64)
        return weights.new_zeros(len(rows), len(self._numbers)).index_add_(1, which, weights)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        """The distinct values, each with its number, in the order they come."""
        return {value: number for number, value in enumerate(dict.fromkeys(self.entries))}


def _number(mean: Any) -> str:
    return f"[{', '.join(map(_number, mean))}]" if isinstance(mean, list) else f"{mean:.6g}"
