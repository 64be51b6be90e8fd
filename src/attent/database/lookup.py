"""lookup(): ask a database, exactly, for the nearest key, or softly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attent.attention.attend import attend
from attent.attention.base import Mask, Normaliser, Score
from attent.attention.call import prepare
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.normalizers import Hard, Softmax
from attent.attention.scores.gaussian import Gaussian
from attent.database.answers import Answer
from attent.database.entries import Entries, agree, entries, listed, numbers, one_number
from attent.database.exact import Equal
from attent.database.strings import Alike, TrigramCosine
from attent.errors import ArgumentError, ShapeError, UnknownNameError

How = Literal["exact", "nearest", "soft"]
# Of cosines between 0 and 1: a string of cosine 0.5 counts e⁻⁵ times as much as an equal one.
TEMPERATURE = 0.1


def lookup(
    queries: Any,
    keys: Any,
    values: Any = None,
    *,
    how: How = "exact",
    bandwidth: float | Sequence[float] | None = None,
    score: str | Score | nn.Module | Callable[..., Any] | None = None,
    temperature: float | None = None,
    inverse: bool = False,
) -> Answer:
    """Ask the database D = {(k₁, v₁) … (kₙ, vₙ)}: Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ for every query.

    - "exact": a query sees the keys that equal it (a mask), and equal keys share the weight. One that no key equals is missing.
    - "nearest": all weight on the key of highest score, the first of equals (the normaliser `hard`).
    - "soft": the softmax of the scores; of numbers and their Gaussian this is the regression of Nadaraya and Watson 1964.

    Args:
        queries: a number, a string, a vector, or a sequence of them; when exact, of any hashable things.
        keys: as many; or a dict of keys and values.
        values: of each key; numbers, or arrays of one shape, have a mean, others a distribution. Not given with a dict.
        how: how a query finds its keys.
        bandwidth: of numbers, in their unit, > 0, one or one per feature: at one bandwidth a key counts e^(−1/2) times as much as at none.
            Needed when soft.
        score: when not exact, what makes a key fit; of numbers any score of `attend`, in the Gaussian's place; of strings a function
            (query, key) → number, in the place of the cosine of their character trigrams.
        temperature: of strings, when soft, > 0: scores are divided by it; 0.1 if not given.
        inverse: whether to turn the database round, and ask for the keys of values.

    Returns:
        An Answer: `values`, `weights`, `distribution`, `votes`, `missing`.

    Raises:
        ArgumentError: entries of different kinds, numbers that are not finite where distances or means are asked, arguments that do not
            belong together.
        ShapeError: not as many values as keys, or vectors of different widths.
        UnknownNameError: how is something else.

    Example:
        >>> print(attent.lookup(["ann", "zoe"], {"ann": "physics", "bob": "maths"}))
        ann → physics 1.00
        zoe → missing: no such key
    """
    if how not in get_args(How):
        raise UnknownNameError("way of looking up", str(how), get_args(How))
    keys, values = _columns(keys, values)
    if inverse:
        keys, values = values, keys
    asked, held = entries("queries", queries), entries("keys", keys)
    if asked.kind == "numbers" and held.kind == "vectors" and not one_number(queries):
        # one vector, written as its numbers
        asked = entries("queries", [queries])
    if len(values) != len(held):
        raise ShapeError(f"there must be a value for each of {len(held)} keys, got {len(values)}")
    _fitting(how, agree(asked, held), bandwidth, score, temperature)
    mean = numbers(values, len(held))
    parts = _exact(asked, held) if how == "exact" else _alike(asked, held, how, bandwidth, score, temperature)
    found = parts.mask.found if isinstance(parts.mask, Equal) else torch.full((len(asked),), len(held) > 0)
    arguments: dict[str, Any] = {"score": parts.score, "normaliser": parts.normaliser, "mask": parts.mask}
    answer = None
    if mean is None:
        weights = AttentionMap.of(prepare(parts.query, parts.key, parts.key, **arguments))
    else:
        flat = mean.reshape(len(mean), math.prod(mean.shape[1:]))
        flat, weights = attend(parts.query, parts.key, flat, **arguments, implementation="tiled", return_map=True)
        answer = flat.masked_fill(~found[:, None], torch.nan).reshape(len(asked), *mean.shape[1:])
    return Answer(asked.items, held.items, tuple(map(_hashable, values)), weights, found, answer)


class _Parts(NamedTuple):
    """What `attend` takes."""

    query: Tensor
    key: Tensor
    score: str | Score | nn.Module | Callable[..., Any]
    normaliser: Normaliser
    mask: Mask | None


def _exact(queries: Entries, keys: Entries) -> _Parts:
    """Every score is 0, and a mask decides."""
    query, key = (torch.zeros(len(side), 1, dtype=torch.float64) for side in (queries, keys))
    return _Parts(query, key, "dot", Softmax(), Equal.of(queries.items, keys.items))


def _alike(
    queries: Entries,
    keys: Entries,
    how: How,
    bandwidth: float | Sequence[float] | None,
    score: str | Score | nn.Module | Callable[..., Any] | None,
    temperature: float | None,
) -> _Parts:
    """Scores decide."""
    normaliser = Hard() if how == "nearest" else Softmax()
    if (queries.kind or keys.kind) == "strings":
        texts = list(dict.fromkeys((*queries.items, *keys.items)))
        number = {text: place for place, text in enumerate(texts)}
        query, key = (
            torch.tensor([number[text] for text in side.items], dtype=torch.float64).reshape(len(side), 1) for side in (queries, keys)
        )
        heat = 1.0 if how == "nearest" else TEMPERATURE if temperature is None else temperature
        if score is not None:
            return _Parts(query, key, Alike(texts, score, heat), normaliser, None)  # pyright: ignore[reportArgumentType]
        # of keys whose trigrams are the same, such as those that differ in letter case, an equal one is the nearest
        return _Parts(query, key, TrigramCosine(texts, heat, equal=1.0 if how == "nearest" else 0.0), normaliser, None)
    query, key = queries.features(), keys.features()
    if len(query) and len(key) and query.shape[1] != key.shape[1]:
        raise ShapeError(f"queries and keys must be vectors of one width, got {query.shape[1]} and {key.shape[1]} numbers")
    if not len(query) or not len(key):
        query, key = (torch.zeros(len(side), 1, dtype=torch.float64) for side in (queries, keys))
    if score is None:
        # its lowered form rounds where keys lie far apart, and what is nearer would not be told from what is nearly so
        score = Gaussian(_checked(bandwidth, key.shape[1])).forward
    return _Parts(query, key, score, normaliser, None)


def _checked(bandwidth: float | Sequence[float] | None, width: int) -> float | list[float]:
    """A bandwidth as Gaussian takes it."""
    if bandwidth is None:
        return 1.0
    try:
        given = torch.as_tensor(bandwidth, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        given = torch.tensor(torch.nan)
    if given.dim() > 1 or given.numel() not in (1, width) or not bool((torch.isfinite(given) & (given > 0)).all()):
        raise ArgumentError(f"bandwidth must be a number > 0, or {width} of them, one per feature, got {bandwidth!r}")
    return given.tolist()


def _fitting(how: How, kind: str | None, bandwidth: object, score: object, temperature: object) -> None:
    """Raise where arguments do not belong together."""
    given = [name for name, value in (("bandwidth", bandwidth), ("score", score), ("temperature", temperature)) if value is not None]
    if how == "exact" and given:
        raise ArgumentError(f'{given[0]} is for how="nearest" or how="soft"; an exact look-up compares by equality')
    if how != "exact" and kind == "things":
        raise ArgumentError(f'numbers, vectors and strings can be near one another, other things only equal: how="exact", not {how!r}')
    if kind == "strings" and bandwidth is not None:
        raise ArgumentError("bandwidth is of numbers; strings have a temperature")
    if kind == "strings" and score is not None and (not callable(score) or isinstance(score, nn.Module)):
        raise ArgumentError(f"a score of strings must be a function (query, key) → number, got {score!r}")
    if temperature is not None and (kind in ("numbers", "vectors") or how == "nearest"):
        raise ArgumentError("temperature is of strings, when soft")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 < temperature < math.inf):
        raise ArgumentError(f"temperature must be a number > 0, got {temperature!r}")
    if bandwidth is not None and score is not None:
        raise ArgumentError("bandwidth is of the Gaussian, and score takes its place: give one of them")
    if how == "soft" and kind in ("numbers", "vectors") and bandwidth is None and score is None:
        raise ArgumentError('how="soft" needs a bandwidth, in the unit of the keys, such as bandwidth=0.1')


def _columns(keys: Any, values: Any) -> tuple[list[Any], list[Any]]:
    """Keys and values one by one."""
    if isinstance(keys, Mapping):
        if values is not None:
            raise ArgumentError("a dict has its values with it: give either a dict, or keys and values")
        return list(keys), list(keys.values())
    if values is None:
        raise ArgumentError("values are missing: give a dict, or keys and values")
    return listed("keys", keys), listed("values", values)


def _hashable(value: Any) -> Any:
    """A value that can be told from others: lists and arrays as tuples."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        value = tuple(map(_hashable, value))
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"values must be numbers, arrays, strings or other hashable things, got {value!r}") from None
    return value
