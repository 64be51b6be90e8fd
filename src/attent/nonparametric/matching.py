"""Read queries, keys and values, and match them: a mask of equal keys, and scores of similar strings."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Mask, Pairs, Score
from attent.errors import ArgumentError, ShapeError, refuse

EntryKind = Literal["numbers", "dates", "vectors", "strings", "things"]


@dataclass(frozen=True)
class Entries:
    """Queries or keys of one kind.

    Args:
        name: "queries" or "keys", for messages.
        items: the entries, hashable; a vector is a tuple.
        kind: their kind, "things" if they are of several; None if there are none.
    """

    name: str
    items: tuple[Any, ...]
    kind: EntryKind | None

    def __len__(self) -> int:
        return len(self.items)

    def features(self) -> Tensor:
        """Return the entries as numbers (n, D), in float64; dates as days.

        Raises:
            ArgumentError: an entry is not a finite number.
            ShapeError: vectors have different widths.
        """
        items: list[Any] = [_days(item) if isinstance(item, date) else item for item in self.items]
        rows = [item if isinstance(item, tuple) else (item,) for item in items]
        for index, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise ShapeError(f"{self.name} must be vectors of one width, got {len(rows[0])} and {len(row)} numbers")
            if not all(map(_is_finite, row)):
                raise ArgumentError(
                    f"{self.name} must be finite numbers to have a distance, got {self.items[index]!r} as "
                    f"{self.name}[{index}]"
                )
        return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), len(rows[0]) if rows else 1)


def read_entries(name: str, data: Any) -> Entries:
    """Read queries or keys: a single one, a sequence, an array or a tensor.

    Raises:
        ArgumentError: they cannot be compared.
    """
    converted = map(_to_python, to_list(name, data))
    items = tuple(_checked_hashable(name, tuple(item) if isinstance(item, list) else item) for item in converted)
    kinds: list[EntryKind] = [*{_kind(item) for item in items}]
    return Entries(name, items, "things" if len(kinds) > 1 else next(iter(kinds), None))


def read_database(queries: Any, keys: Any, values: Any, *, inverse: bool) -> tuple[Entries, Entries, list[Any]]:
    """Read the arguments of a lookup: queries, keys, and a value for each key.

    Raises:
        ArgumentError: values are missing, or given along with a dict; or `read_entries` refuses an entry.
        ShapeError: the numbers of keys and values differ.
    """
    is_series = values is None and getattr(keys, "ndim", None) == 1 and hasattr(keys, "items")
    if isinstance(keys, Mapping) or is_series:
        refuse((values is not None, "a dict already has values: give either a dict, or keys and values"))
        items = list(keys.items())
        keys, values = [key for key, _ in items], [value for _, value in items]
    elif values is None:
        raise ArgumentError("values are missing: give a dict or a pandas Series, or keys and values")
    else:
        keys, values = to_list("keys", keys), to_list("values", values)
    if inverse:
        keys, values = values, keys
    query_entries, key_entries = read_entries("queries", queries), read_entries("keys", keys)
    is_scalar = isinstance(queries, Real) or getattr(queries, "ndim", None) == 0
    if query_entries.kind == "numbers" and key_entries.kind == "vectors" and not is_scalar:
        # a single vector, given as its numbers
        query_entries = read_entries("queries", [queries])
    if len(values) != len(key_entries):
        raise ShapeError(f"there must be a value for each of {len(key_entries)} keys, got {len(values)}")
    return query_entries, key_entries, values


def to_list(name: str, data: Any) -> list[Any]:
    """Return the entries as a list.

    A number, a string or any other object that is not a sequence, such as a date, is a single entry.
    """
    if isinstance(data, Tensor):
        data = data.detach().cpu().numpy()
    elif getattr(data, "ndim", None) == 2 and hasattr(data, "to_numpy"):
        # a DataFrame, which would otherwise be read as the names of its columns
        data = data.to_numpy()
    data = _to_python(data)
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        return [data]
    if isinstance(data, Mapping):
        raise ArgumentError(f"{name} must be a number, a string or a sequence of them, got {type(data).__name__}")
    return list(data)


def common_kind(queries: Entries, keys: Entries) -> EntryKind | None:
    """Return the kind that queries and keys share.

    Raises:
        ArgumentError: they are of different kinds.
    """
    if None not in (queries.kind, keys.kind) and queries.kind != keys.kind:
        query, key = (f"{entries.kind} such as {entries.items[0]!r}" for entries in (queries, keys))
        raise ArgumentError(f"queries and keys must be of one kind, got {query} and {key}")
    return queries.kind or keys.kind


def numeric_values(values: Sequence[Any]) -> Tensor | None:
    """Return values as (n, …) in float64 if all are numbers, or arrays of one shape; None otherwise.

    If float64 cannot represent a whole number exactly, the values are treated as names, since a mean would be wrong.

    Raises:
        ArgumentError: a number is not finite.
    """
    if not values:
        return torch.zeros(0, dtype=torch.float64)
    numeric = (Real, Tensor, np.ndarray, list, tuple)
    if any(isinstance(value, bool) or not isinstance(value, numeric) or _is_rounded(value) for value in values):
        return None
    try:
        numbers = torch.from_numpy(np.array([_to_python(value) for value in values], dtype=np.float64))
    except (TypeError, ValueError):
        return None
    except OverflowError:
        raise ArgumentError(
            "values must be finite numbers of double precision to have a mean, got one that is too large"
        ) from None
    is_finite = torch.isfinite(numbers.reshape(len(numbers), -1)).all(1).tolist()
    if not all(is_finite):
        index = is_finite.index(False)
        raise ArgumentError(f"values must be finite numbers to have a mean, got {values[index]!r} as values[{index}]")
    return numbers


def to_hashable(value: Any) -> Any:
    """Return a value in hashable form: lists and arrays as tuples.

    Raises:
        ArgumentError: it cannot be hashed.
    """
    value = _to_python(value)
    return _checked_hashable("values", tuple(map(to_hashable, value)) if isinstance(value, list) else value)


def _to_python(data: Any) -> Any:
    if isinstance(data, np.ndarray | np.datetime64) and data.dtype.kind == "M":
        # numpy converts dates in nanoseconds, as pandas stores them, to whole numbers
        microseconds = data.astype("datetime64[us]") if np.datetime_data(data.dtype)[0] == "ns" else data
        data = microseconds if bool(np.all((microseconds == data) | np.isnat(data))) else data
    return data.tolist() if hasattr(data, "tolist") else data


def _is_rounded(value: Any) -> bool:
    """Return whether a value is a whole number that float64 cannot represent exactly."""
    return isinstance(value, int) and _is_finite(value) and int(float(value)) != value


def _is_finite(number: Real | int) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _checked_hashable(name: str, item: Any) -> Any:
    """Return an entry or a value if it is hashable; None is a valid value, but not a valid entry."""
    try:
        if item is None and name != "values":
            raise TypeError
        hash(item)
    except TypeError:
        raise ArgumentError(
            f"{name} must be numbers, vectors, strings or other hashable things, got {item!r}"
        ) from None
    return item


def _days(item: date) -> float:
    """Return a date's ordinal number in days, plus its time as a fraction, in UTC if it has a time zone."""
    # pandas' NaT, a missing time
    if item != item:
        return math.nan
    if not isinstance(item, datetime):
        return float(item.toordinal())
    if item.tzinfo is not None:
        item = item.astimezone(UTC)
    midnight = item.replace(hour=0, minute=0, second=0, microsecond=0)
    return item.toordinal() + (item - midnight) / timedelta(days=1)


def _kind(item: Any) -> EntryKind:
    if isinstance(item, str):
        return "strings"
    if isinstance(item, date):
        return "dates"
    parts = item if isinstance(item, tuple) else (item,)
    if parts and all(isinstance(part, Real) and not isinstance(part, bool) for part in parts):
        return "vectors" if isinstance(item, tuple) else "numbers"
    return "things"


@dataclass(frozen=True, eq=False)
class Equal(Mask):
    """A query sees the keys that equal it: key == query.

    Args:
        query: (Tq,) the number of each query's item; equal items share one, and a negative one equals nothing.
        key: (Tk,) the number of each key's item, likewise.
    """

    query: Tensor
    key: Tensor

    @classmethod
    def of(cls, queries: Sequence[Hashable], keys: Sequence[Hashable]) -> Equal:
        """Return the mask of items that compare by equality; NaN, which does not equal itself, equals nothing."""
        keys, queries = (tuple(map(_day, side)) for side in (keys, queries))
        numbers: dict[Hashable, int] = {}
        key = [numbers.setdefault(item, len(numbers)) if item == item else -2 for item in keys]
        query = [numbers.get(item, -1) if item == item else -1 for item in queries]
        return cls(torch.tensor(query, dtype=torch.int64), torch.tensor(key, dtype=torch.int64))

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return (1, 1, Tq, Tk), True where key and query are equal."""
        return (self.query[pairs.query_index][:, None] == self.key[pairs.key_index])[None, None]

    @property
    def has_match(self) -> Tensor:
        """(Tq,) True where any key equals the query."""
        return torch.isin(self.query, self.key)

    def __repr__(self) -> str:
        return f"Equal({len(self.query)} queries, {len(self.key)} keys)"


class TrigramCosine(Score):
    """The cosine of two strings' character trigram counts, divided by a temperature: score(q, k) = cos(q, k) / τ.

    Damashek 1995, "Gauging Similarity with n-Grams". Letter case and equivalent encodings of a character are ignored
    (NFKC, case folding); two spaces before a string and one after it give its beginning more weight than its end.
    Counts are stored sparsely, since a string has few of all trigrams.

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
        """Return the concatenated trigrams of strings, their weights, and the number of trigrams of each string."""
        offsets = self._offsets[text_index]
        lengths = self._offsets[text_index + 1] - offsets
        shift = torch.repeat_interleave(offsets - (lengths.cumsum(0) - lengths), lengths)
        index = torch.arange(len(shift)) + shift
        return self._trigram_ids[index], self._weights[index], lengths


def _day(item: Any) -> Any:
    """Return the date of a midnight without a time zone, which is how tables store dates; other items unchanged."""
    # pandas' NaT, a missing datetime, does not equal itself
    if not isinstance(item, datetime) or item.tzinfo is not None or item != item:
        return item
    return item.date() if item == datetime.combine(item.date(), time()) else item


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {unicodedata.normalize('NFKC', text).casefold()} "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))
