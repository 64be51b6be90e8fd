"""lookup(): query a database for equal keys, for the nearest key, or softly for similar keys.

An answer has values, the weights that they come from, and the queries without a match.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from attent.attention.arguments import prepare
from attent.attention.attend import attend
from attent.attention.base import Score
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.scores.gaussian import Gaussian
from attent.errors import ArgumentError, ShapeError, check_known, refuse
from attent.nonparametric.matching import (
    Entries,
    Equal,
    TrigramCosine,
    common_kind,
    numeric_values,
    read_database,
    to_hashable,
)
from attent.views.labels import cut, pad, width
from attent.views.panel import Panel

# The queries, the values per query and the columns per label that `print` shows at most; it omits smaller weights.
MAX_QUERIES, MAX_VALUES, MAX_COLUMNS, MIN_WEIGHT = 20, 4, 32, 0.005
# Whole numbers below this are printed with all their digits.
EXACT = 1e15
# The number of weights in memory while `mode` is computed.
TILE = 2**20
Method = Literal["exact", "nearest", "soft"]
AnyScore = str | Score | nn.Module | Callable[..., Any]
# For cosines from 0 to 1: a string of cosine 0.5 counts e⁻⁵ times as much as an equal one.
TEMPERATURE = 0.1


class Vote(NamedTuple):
    """The contribution of one key to an answer."""

    key: Any
    value: Any
    weight: float


@dataclass(frozen=True, repr=False)
class Answer:
    """The answers of a database to queries; `print` shows one line per query.

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
        """The answers: for numbers the mean, (Tq, …), NaN where missing.

        For other values, the answers are the mode, None where missing.
        """
        return self.mode if self.mean is None else self.mean

    @property
    def value(self) -> Any:
        """The answer to the only query.

        Raises:
            ArgumentError: there are several queries, or none.
        """
        refuse((len(self) != 1, f"value is the answer to a single query, got {len(self)} queries: use values"))
        return self.mode[0] if self.mean is None else self.mean[0].tolist()

    @cached_property
    def mode(self) -> list[Any]:
        """The value with the largest weight for each query, the first one in a tie; None where no key matches."""
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
        """Return the n keys with the largest weights for a query, the largest first; keys of weight 0 are omitted.

        Args:
            query: the index of the query.
            n: the number of keys, ≥ 1.

        Raises:
            ArgumentError: there is no such query, or n is less than one.
        """
        refuse((isinstance(n, bool) or not isinstance(n, int) or n < 1, f"n must be a whole number ≥ 1, got {n!r}"))
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
            return "missing: no such key" if self.keys else "missing: there are no keys"
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
    if isinstance(mean, list):
        return f"[{', '.join(map(_format, mean))}]"
    return f"{mean:.0f}" if mean == round(mean) and abs(mean) < EXACT else f"{mean:.6g}"


def lookup(
    queries: Any,
    keys: Any,
    values: Any = None,
    *,
    method: Method = "exact",
    bandwidth: float | Sequence[float] | None = None,
    score: AnyScore | None = None,
    temperature: float | None = None,
    inverse: bool = False,
) -> Answer:
    """Query the database D = {(k₁, v₁) … (kₙ, vₙ)}: Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ for every query.

    - "exact": a query sees the keys that equal it (a mask), and equal keys share the weight. A query without an equal
      key is missing.
    - "nearest": the key with the highest score has all the weight, the first one in a tie (the normalizer `hard`).
    - "soft": the weights are the softmax of the scores; with the Gaussian score of numbers, this is Nadaraya-Watson
      regression (1964).

    Args:
        queries: a number, a date, a string, a vector, or a sequence of them; with "exact", any hashable objects.
        keys: the keys, of the same kind; or a dict, or a pandas Series, of keys and values. A date equals midnight of
            that day.
        values: the value of each key. Numbers and arrays of one shape are averaged; other values have a distribution.
            Omit it with a dict, or with a Series whose index holds the keys.
        method: "exact", "nearest" or "soft".
        bandwidth: > 0, a single number or one per feature, in the unit of the numbers, or in days for dates: a key at
            a distance of one bandwidth counts e^(−1/2) times as much as an equal one. "soft" requires it for numbers
            and dates, unless `score` is given.
        score: for numbers and dates with "nearest" and "soft": any score of `attend` instead of the Gaussian.
        temperature: for strings with "soft", > 0: divides the cosines of their character trigrams; 0.1 if not given.
        inverse: look up keys by their values.

    Returns:
        An Answer: `values`, `weights`, `distribution`, `votes`, `missing`.

    Raises:
        ArgumentError: entries are of different kinds, a number is not finite where a distance or a mean needs it, or
            arguments are incompatible.
        ShapeError: the numbers of keys and values differ, or vectors have different widths.
        UnknownNameError: an unknown method.

    Example:
        >>> print(attent.lookup(["ann", "zoe"], {"ann": "physics", "bob": "maths"}))
        ann → physics 1.00
        zoe → missing: no such key
    """
    check_known("lookup method", str(method), get_args(Method))
    query_entries, key_entries, values = read_database(queries, keys, values, inverse=inverse)
    kind = None if method == "exact" else common_kind(query_entries, key_entries)
    _check_options(method, kind, bandwidth, score, temperature)
    numbers = numeric_values(values)
    query, key, score, mask = _comparison(query_entries, key_entries, kind, method, bandwidth, score, temperature)
    has_match = torch.full((len(query_entries),), len(key_entries) > 0) if mask is None else mask.has_match
    options: dict[str, Any] = {"score": score, "normalizer": "hard" if method == "nearest" else "softmax", "mask": mask}
    mean, weights = _mean(query, key, numbers, has_match, options)
    return Answer(query_entries.items, key_entries.items, tuple(map(to_hashable, values)), weights, has_match, mean)


def _comparison(
    queries: Entries,
    keys: Entries,
    kind: str | None,
    method: Method,
    bandwidth: float | Sequence[float] | None,
    score: Any,
    temperature: float | None,
) -> tuple[Tensor, Tensor, AnyScore, Equal | None]:
    """Return queries and keys as vectors, their score and, for an exact lookup, the mask of equal keys."""
    if method == "exact":
        return *_zeros(queries, keys), "dot", Equal.of(queries.items, keys.items)
    if kind == "strings":
        return *_strings(queries, keys, method, temperature), None
    return *_vectors(queries, keys, bandwidth, score), None


def _mean(
    query: Tensor, key: Tensor, numbers: Tensor | None, has_match: Tensor, options: dict[str, Any]
) -> tuple[Tensor | None, AttentionMap]:
    """Return each query's mean, (Tq, …), NaN where missing, or None if values are not numbers; and the weights."""
    if numbers is None:
        return None, AttentionMap.of(prepare(query, key, key, **options))
    shape = numbers.shape[1:]
    values = numbers.reshape(len(numbers), math.prod(shape))
    mean, weights = attend(query, key, values, **options, implementation="tiled", return_map=True)
    return mean.masked_fill(~has_match[:, None], torch.nan).reshape(len(query), *shape), weights


def _zeros(queries: Entries, keys: Entries) -> tuple[Tensor, Tensor]:
    """Return queries and keys as zeros, so that every score is 0."""
    return torch.zeros(len(queries), 1, dtype=torch.float64), torch.zeros(len(keys), 1, dtype=torch.float64)


def _strings(
    queries: Entries, keys: Entries, method: Method, temperature: float | None
) -> tuple[Tensor, Tensor, Score]:
    """Return queries and keys as indices of their distinct strings, and the score of the strings."""
    index = {text: number for number, text in enumerate(dict.fromkeys((*queries.items, *keys.items)))}
    query, key = (
        torch.tensor([index[text] for text in side.items], dtype=torch.float64).reshape(-1, 1)
        for side in (queries, keys)
    )
    is_nearest = method == "nearest"
    if is_nearest or temperature is None:
        temperature = 1.0 if is_nearest else TEMPERATURE
    # among keys with the same trigrams, such as those that differ in letter case, an equal one is the nearest
    return query, key, TrigramCosine(list(index), temperature, equal=1.0 if is_nearest else 0.0)


def _vectors(
    queries: Entries, keys: Entries, bandwidth: float | Sequence[float] | None, score: AnyScore | None
) -> tuple[Tensor, Tensor, AnyScore]:
    """Return queries and keys as vectors, and their score."""
    query, key = queries.features(), keys.features()
    if len(query) and len(key) and query.shape[1] != key.shape[1]:
        raise ShapeError(
            f"queries and keys must be vectors of one width, got {query.shape[1]} and {key.shape[1]} numbers"
        )
    if not len(query) or not len(key):
        query, key = _zeros(queries, keys)
    # the lowered form of a Gaussian is rounded where keys are far apart, and could take a key that is only nearly the
    # nearest for the nearest
    return query, key, Gaussian(_checked_bandwidth(bandwidth, key.shape[1])).forward if score is None else score


def _checked_bandwidth(bandwidth: float | Sequence[float] | None, width: int) -> float | list[float]:
    """Return a bandwidth in the form that Gaussian accepts."""
    try:
        numbers = torch.from_numpy(np.array(1.0 if bandwidth is None else bandwidth, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError):
        numbers = torch.tensor(torch.nan)
    if (
        numbers.dim() > 1
        or numbers.numel() not in (1, width)
        or not bool((torch.isfinite(numbers) & (numbers > 0)).all())
    ):
        raise ArgumentError(f"bandwidth must be a number > 0, or {width} of them, one per feature, got {bandwidth!r}")
    return numbers.tolist()


def _check_options(method: Method, kind: str | None, bandwidth: object, score: object, temperature: object) -> None:
    """Raise ArgumentError if options are incompatible."""
    options = {"bandwidth": bandwidth, "score": score, "temperature": temperature}
    names = [name for name, value in options.items() if value is not None]
    is_numeric = kind in ("numbers", "dates", "vectors")
    is_valid_temperature = isinstance(temperature, int | float) and 0 < temperature < math.inf
    refuse(
        (
            method == "exact" and names,
            f'{" and ".join(names)} is for method="nearest" or method="soft"; an exact lookup compares by equality',
        ),
        (
            method != "exact" and kind == "things",
            (
                'only numbers, dates, vectors and strings can be similar; other things compare by method="exact", not '
                f"{method!r}"
            ),
        ),
        (kind == "strings" and bandwidth is not None, "bandwidth is for numbers and dates; strings have a temperature"),
        (kind == "strings" and score is not None, "score is for numbers and dates; strings compare by their trigrams"),
        (
            temperature is not None and (is_numeric or method == "nearest"),
            'temperature is for strings with method="soft"',
        ),
        (
            temperature is not None and not is_valid_temperature,
            f"temperature must be a number > 0, got {temperature!r}",
        ),
        (
            bandwidth is not None and score is not None,
            "bandwidth is for the Gaussian, which score replaces: give only one of them",
        ),
        (
            method == "soft" and is_numeric and bandwidth is None and score is None,
            (
                f'method="soft" needs a bandwidth, in {"days" if kind == "dates" else "the unit of the keys"}, such as '
                "bandwidth=0.1"
            ),
        ),
    )
