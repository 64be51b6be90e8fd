"""What a database is asked and what it holds, read and checked: numbers, vectors, strings, or other things that can be equal."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from attent.errors import ArgumentError, ShapeError

# Up to here float64 holds every whole number.
EXACT = 2**53
Kind = Literal["numbers", "vectors", "strings", "things"]


@dataclass(frozen=True)
class Entries:
    """Queries or keys of one kind.

    Args:
        name: what they are, for messages.
        items: one by one, hashable; a vector is a tuple.
        kind: what they are; None where there are none.
    """

    name: str
    items: tuple[Any, ...]
    kind: Kind | None

    def __len__(self) -> int:
        return len(self.items)

    def features(self) -> Tensor:
        """Numbers and vectors as (n, D), in float64.

        Raises:
            ArgumentError: one is not a finite number.
            ShapeError: vectors of different widths.
        """
        rows = [item if isinstance(item, tuple) else (item,) for item in self.items]
        for place, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise ShapeError(f"{self.name} must be vectors of one width, got {len(rows[0])} numbers at first and {len(row)} later")
            if not all(map(_finite, row)):
                raise ArgumentError(
                    f"{self.name} must be finite numbers to be near one another, got {self.items[place]!r} as {self.name}[{place}]"
                )
        return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), len(rows[0]) if rows else 1)


def entries(name: str, given: Any) -> Entries:
    """Queries or keys as they are given: one, or a sequence, an array, a tensor.

    Raises:
        ArgumentError: they are of several kinds, or cannot be compared.
    """
    items = tuple(_item(name, item) for item in listed(name, given))
    kinds: dict[Kind, Any] = {}
    for item in items:
        kinds.setdefault(_kind(item), item)
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise ArgumentError(f"{name} must be of one kind, got {one} such as {first!r} and {other} such as {second!r}")
    return Entries(name, items, next(iter(kinds), None))


def listed(name: str, given: Any) -> list[Any]:
    """Entries one by one; what is a number or a string is one entry."""
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, str | bytes | Real) or given is None:
        return [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ArgumentError(f"{name} must be a number, a string or a sequence of them, got {type(given).__name__}")
    return list(given)


def one_number(given: Any) -> bool:
    """Whether this is a number, and no sequence of them."""
    return isinstance(given, Real) or getattr(given, "ndim", None) == 0


def agree(queries: Entries, keys: Entries) -> Kind | None:
    """The kind that queries and keys have in common.

    Raises:
        ArgumentError: they are of different kinds.
    """
    if queries.kind is not None and keys.kind is not None and queries.kind != keys.kind:
        one, other = (f"{side.kind} such as {side.items[0]!r}" for side in (queries, keys))
        raise ArgumentError(f"queries and keys must be of one kind, got {one} and {other}")
    return keys.kind if queries.kind is None else queries.kind


def numbers(given: Sequence[Any], count: int) -> Tensor | None:
    """Values as (n, …) in float64 where all are numbers, or arrays of one shape; None where they are something else.

    Whole numbers that float64 does not hold are something else: names of things, which a mean would change.

    Raises:
        ArgumentError: a number that is not finite, which would spoil every mean.
    """
    if not given or not all(
        isinstance(value, Real | Tensor | np.ndarray | list | tuple) and not isinstance(value, bool) for value in given
    ):
        return torch.zeros(0, dtype=torch.float64) if not count else None
    if any(isinstance(value, int) and abs(value) > EXACT and _finite(value) and int(float(value)) != value for value in given):
        return None
    try:
        values = torch.from_numpy(np.array([value.tolist() if hasattr(value, "tolist") else value for value in given], dtype=np.float64))
    except (TypeError, ValueError):
        return None
    except OverflowError:
        raise ArgumentError("values must be finite numbers of double precision to have a mean, got one that is too large") from None
    finite = torch.isfinite(values.reshape(len(values), -1)).all(1)
    if not bool(finite.all()):
        place = int((~finite).nonzero()[0])
        raise ArgumentError(f"values must be finite numbers to have a mean, got {given[place]!r} as values[{place}]")
    return values


def _finite(number: Real | int) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _item(name: str, item: Any) -> Any:
    if hasattr(item, "tolist"):
        item = item.tolist()
    if isinstance(item, list):
        item = tuple(item)
    if not isinstance(item, Hashable) or item is None:
        raise ArgumentError(f"{name} must be numbers, vectors, strings or other hashable things, got {item!r}")
    try:
        hash(item)
    except TypeError:
        raise ArgumentError(f"{name} must be numbers, vectors, strings or other hashable things, got {item!r}") from None
    return item


def _kind(item: Any) -> Kind:
    numbers_, vectors, strings, things = get_args(Kind)
    if isinstance(item, str):
        return strings
    if isinstance(item, Real) and not isinstance(item, bool):
        return numbers_
    if isinstance(item, tuple) and item and all(isinstance(part, Real) and not isinstance(part, bool) for part in item):
        return vectors
    return things
