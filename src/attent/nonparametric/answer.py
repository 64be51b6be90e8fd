"""The answer of a lookup: values, the weights they come from, and the queries without a match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError
from attent.views.labels import cut, pad, width
from attent.views.panel import Panel

# Queries, values of each query, and columns of a label that `print` shows; smaller weights are left out.
MAX_QUERIES, MAX_VALUES, MAX_COLUMNS, MIN_WEIGHT = 20, 4, 32, 0.005
# Weights held at once while `mode` is computed.
TILE = 2**20


class Vote(NamedTuple):
    """The part of one key in an answer."""

    key: Any
    value: Any
    weight: float


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer of a database to some queries; printed, a line for each query.

    Args:
        queries: the queries.
        keys: the keys of the database.
        entries: the value of each key, hashable.
        weights: the weight of each key (columns) for each query (rows), as a lazy matrix (Tq, Tk).
        has_match: (Tq,) True where any key matches.
        mean: (Tq, …) the weighted mean of numeric values, NaN where no key matches; None for other values.
    """

    queries: tuple[Any, ...]
    keys: tuple[Any, ...]
    entries: tuple[Any, ...]
    weights: AttentionMap
    has_match: Tensor
    mean: Tensor | None = None

    @property
    def missing(self) -> list[Any]:
        """The queries that no key matches."""
        return [query for query, has_match in zip(self.queries, self.has_match.tolist(), strict=True) if not has_match]

    @property
    def values(self) -> Tensor | list[Any]:
        """The answers: the mean of numbers, (Tq, …), NaN where missing.

        For other values the mode, None where missing.
        """
        return self.mode if self.mean is None else self.mean

    @property
    def value(self) -> Any:
        """The answer to the only query.

        Raises:
            ArgumentError: there are several queries, or none.
        """
        if len(self) != 1:
            raise ArgumentError(f"value is the answer to one query, and there are {len(self)}: see values")
        return self.mode[0] if self.mean is None else self.mean[0].tolist()

    @cached_property
    def mode(self) -> list[Any]:
        """The value of largest weight for each query, the first of equals; None where no key matches."""
        values = list(self._value_ids)
        if not values:
            return [None] * len(self)
        rows = torch.arange(len(self)).split(max(TILE // len(self.keys), 1))
        modes = [value_id for tile in rows for value_id in self._value_weights(tile).argmax(-1).tolist()]
        return [
            values[value_id] if has_match else None
            for value_id, has_match in zip(modes, self.has_match.tolist(), strict=True)
        ]

    def distribution(self, query: int = 0) -> dict[Any, float]:
        """Return the weight of each distinct value for a query, the largest first; empty where no key matches.

        Args:
            query: the index of the query.

        Raises:
            ArgumentError: there is no such query.
        """
        weights = self._value_weights(self._row(query))[0]
        values = list(self._value_ids)
        order = weights.argsort(descending=True, stable=True).tolist()
        return {values[value_id]: weights[value_id].item() for value_id in order if weights[value_id] > 0}

    def votes(self, query: int = 0, n: int = 5) -> list[Vote]:
        """Return the n keys of largest weight for a query, the largest first; keys without weight are left out.

        Args:
            query: the index of the query.
            n: the number of keys, ≥ 1.

        Raises:
            ArgumentError: there is no such query, or n is less than one.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ArgumentError(f"n must be a whole number ≥ 1, got {n!r}")
        weights = self.weights.rows(self._row(query))[0, 0, 0]
        order = weights.argsort(descending=True, stable=True)[:n].tolist()
        return [
            Vote(self.keys[index], self.entries[index], weights[index].item()) for index in order if weights[index] > 0
        ]

    def panel(self) -> Panel:
        """Return the weights with their labels, for any view, such as `attent.views.picture.picture`."""
        labels = (tuple(map(str, items)) for items in (self.queries, self.keys))
        return Panel(self.weights.dense(), *labels, title="weights", reading="row: a query · columns: keys")

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values if self.mean is None else self.mean.tolist())

    def __repr__(self) -> str:
        labels = [cut(str(query), MAX_COLUMNS) for query in self.queries[:MAX_QUERIES]]
        margin = max(map(width, labels), default=0)
        lines = [f"{pad(label, margin, left=True)} → {self._line(query)}" for query, label in enumerate(labels)]
        if len(self) > MAX_QUERIES:
            lines.append(f"… and {len(self) - MAX_QUERIES} more")
        return "\n".join(lines) if lines else "(no queries)"

    def _line(self, query: int) -> str:
        if not self.has_match[query]:
            return (
                f"missing: no such key{self._zones(self.queries[query])}" if self.keys else "missing: there are no keys"
            )
        if self.mean is not None:
            votes = ", ".join(
                f"{vote.key} {vote.weight:.2f}" for vote in self.votes(query, MAX_VALUES) if vote.weight >= MIN_WEIGHT
            )
            return f"{_format(self.mean[query].tolist())}  (keys: {votes})"
        weights = [
            f"{cut(str(value), MAX_COLUMNS)} {weight:.2f}"
            for value, weight in self.distribution(query).items()
            if weight >= MIN_WEIGHT
        ]
        return ", ".join(weights[:MAX_VALUES]) + (
            f" and {len(weights) - MAX_VALUES} more" if len(weights) > MAX_VALUES else ""
        )

    def _zones(self, query: Any) -> str:
        """Return why a date equals none of these keys: one side has a time zone, and the other has none."""
        zones = {key.tzinfo is not None for key in self.keys if isinstance(key, datetime)}
        if not isinstance(query, date) or len(zones) != 1:
            return ""
        query_has_zone, (keys_have_zone,) = getattr(query, "tzinfo", None) is not None, zones
        if query_has_zone == keys_have_zone:
            return ""
        return (
            f" (keys have {'a' if keys_have_zone else 'no'} time zone, and this has "
            f"{'one' if query_has_zone else 'none'})"
        )

    def _row(self, query: int) -> Tensor:
        if isinstance(query, bool) or not isinstance(query, int) or not 0 <= query < len(self):
            raise ArgumentError(f"query must be the index of one of {len(self)} queries, from 0, got {query!r}")
        return torch.tensor([query])

    def _value_weights(self, rows: Tensor) -> Tensor:
        """Return the weight of each distinct value for some queries, (rows, distinct values)."""
        weights = self.weights.rows(rows)[0, 0]
        value_ids = torch.tensor([self._value_ids[value] for value in self.entries], dtype=torch.int64)
        return weights.new_zeros(len(rows), len(self._value_ids)).index_add_(1, value_ids, weights)

    @cached_property
    def _value_ids(self) -> dict[Any, int]:
        """The distinct values in order of appearance, numbered."""
        return {value: number for number, value in enumerate(dict.fromkeys(self.entries))}


def _format(mean: Any) -> str:
    return f"[{', '.join(map(_format, mean))}]" if isinstance(mean, list) else f"{mean:.6g}"
