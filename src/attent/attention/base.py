"""The slots of the formula: what a score, a normalizer, a mask and a position offer.

Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ over a database D = {(k₁, v₁) … (kₙ, vₙ)}, where α comes from a score (how well does this
key fit this query), a mask (may this query see this key), and a normalizer (scores → weights).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from attent.errors import ShapeError


class Side(NamedTuple):
    """Lowered queries or keys of a score; `origin` is the point that both sides were centred on, if any."""

    features: Tensor  # (B, H, T, D')
    bias: Tensor | None = None  # (B, H, T)
    origin: Tensor | None = None  # (B, H, 1, D)

    def through(self, change: Callable[[Tensor], Tensor]) -> Side:
        """The side with each of its tensors changed."""
        bias, origin = (None if part is None else change(part) for part in (self.bias, self.origin))
        return Side(change(self.features), bias, origin)


@dataclass(frozen=True)
class Pairs:
    """The pairs (query i, key j) of one tile, by row and column and by position in the sequence."""

    rows: Tensor  # (Tq,) the queries' indices in this call
    columns: Tensor  # (Tk,) the keys' indices, ascending, which are their positions too
    positions: Tensor  # (B|1, Tq) where the queries stand
    heads: int

    def between(self) -> tuple[Tensor, Tensor]:
        """Query positions (B|1, 1, Tq, 1) and key positions (Tk,), ready to be compared."""
        return self.positions[:, None, :, None], self.columns


class Score(nn.Module):
    """How well a key fits a query: `forward(query, key)` is the specification.

    query (B, H, Tq, Dq) and key (B, H, Tk, Dk) give scores (B, H, Tq, Tk). A score that splits into a query half and a key
    half says so by `form` (see DotScore and TanhScore); any other keeps what stands here and runs tiled.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[Literal["dot", "tanh"] | None] = None
    # whether lowering leaves every bit as it was, so that 16-bit inputs lose nothing by it
    lowers_exactly: ClassVar[bool] = False
    # set by a score whose parameters differ from head to head
    heads: int | None = None
    # the (query, key) widths of a score whose parameters need them
    widths: tuple[int, int] | None = None
    # how many keys a score whose parameters are those of their places can tell apart
    maximum_length: int | None = None

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """The score a module builds from its name alone, knowing the widths and the number of heads."""
        return cls()

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Raise ShapeError where this score cannot serve such widths or so many heads."""
        if self.widths is not None and self.widths != (query_width, key_width):
            raise ShapeError(f"{type(self).__name__} was made for widths (query, key) = {self.widths}, got {(query_width, key_width)}")
        if self.heads is not None and self.heads != heads:
            raise ShapeError(f"{type(self).__name__} was made for {self.heads} heads, got {heads}")

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Every intermediate by name, the scores last."""
        return {"scores": self(query, key)}

    def origin(self, key: Tensor, visible: Tensor | None = None) -> Tensor | None:
        """A point (B, H, 1, D) to centre both sides on, where the lowered form would otherwise cancel.

        Of the keys only the `visible` ones (B|1, H|1, Tk) are looked at, all if not given.
        """
        return None

    def for_inputs(self, query: Tensor, key: Tensor, visible: Tensor | None = None) -> Score:
        """This score, or one without a form where the lowered one would lose digits of these tensors; `visible` keys are (B|1, G|1, Tk)."""
        return self

    def per_pair(self, query_width: int) -> int:
        """How many numbers a pair takes while its score is computed of lowered sides, from which tiles take their size."""
        return max(query_width, 1)

    def lower_query(self, query: Tensor, origin: Tensor | None = None) -> Side:
        """The query's half of the score."""
        return Side(query)

    def lower_key(self, key: Tensor, origin: Tensor | None = None) -> Side:
        """The key's half of the score; `origin` is the one to use if keys of the same sequence were lowered before."""
        return Side(key)

    def lower_later_key(self, key: Tensor, start: int, origin: Tensor | None = None) -> Side:
        """The same of keys that stand from `start` on, behind others; only a score of places tells the difference."""
        return self.lower_key(key, origin)

    def between(self, query: Side, key: Side) -> Tensor:
        """The scores (B, H, Tq, Tk) of two lowered sides."""
        return self(query.features, key.features)

    def extra_repr(self) -> str:
        """The head count, where the parameters differ from head to head."""
        return "" if self.heads is None else f"heads={self.heads}"


class DotScore(Score):
    """A score of dot form: scale · q'·k' + a bias of the query + a bias of the key."""

    form: ClassVar[Literal["dot", "tanh"] | None] = "dot"

    def scale(self, width: int) -> float:
        """The factor on q'·k', given the width of q'."""
        return 1.0

    def per_pair(self, query_width: int) -> int:
        """The score alone."""
        return 1

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Without parameters between them, query and key must be equally wide."""
        super().check(query_width, key_width, heads)
        if self.widths is None and query_width != key_width:
            raise ShapeError(f"{type(self).__name__} needs queries and keys of one width, got Dq = {query_width} and Dk = {key_width}")

    def between(self, query: Side, key: Side) -> Tensor:
        """scale · q'·k' + biases, (B, H, Tq, Tk)."""
        scores, scale = query.features @ key.features.transpose(-2, -1), self.scale(query.features.shape[-1])
        scores = scores if scale == 1.0 else scores * scale
        if query.bias is not None:
            scores = scores + query.bias[..., :, None]
        if key.bias is not None:
            scores = scores + key.bias[..., None, :]
        return scores


class TanhScore(Score):
    """A score of tanh form: v·tanh(q' + k'), with parameters of its own."""

    form: ClassVar[Literal["dot", "tanh"] | None] = "tanh"
    # the width inside the tanh
    hidden: int

    def per_pair(self, query_width: int) -> int:
        """Every component of the tanh."""
        return self.hidden

    def direction(self, like: Tensor) -> Tensor:
        """v as (H|1, 1, 1, hidden), of `like`'s type."""
        raise NotImplementedError

    def between(self, query: Side, key: Side) -> Tensor:
        """v·tanh(q' + k'), (B, H, Tq, Tk)."""
        hidden = torch.tanh(query.features[..., :, None, :] + key.features[..., None, :, :])  # (B, H, Tq, Tk, hidden)
        return (hidden * self.direction(hidden)).sum(-1)


class Normalizer:
    """Scores → weights. Hidden pairs get exactly zero, and so does a row that may see nothing."""

    aliases: ClassVar[tuple[str, ...]] = ()
    # whether each row's weights are nonnegative and sum to one
    distribution: ClassVar[bool] = True
    # whether adding a number to a whole row of scores changes nothing
    shift_invariant: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept `normalise`, the former spelling of `normalize`, from subclasses and from callers."""
        super().__init_subclass__(**kwargs)
        if own := vars(cls).get("normalize") or vars(cls).get("normalise"):
            cls.normalize = cls.normalise = own

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the weights of finite scores (…, Tk); the lowest finite number marks a hidden pair."""
        raise NotImplementedError

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Weights of scores (…, Tq, Tk), of which only the `allowed` pairs count.

        Hidden scores become the lowest finite number rather than −∞: a fully masked row stays finite, its weights are set to zero.
        """
        if not scores.shape[-1]:
            # no keys, no weights
            return scores
        if allowed is None:
            return self.normalize(scores)
        hidden = ~allowed
        weights = self.normalize(scores.masked_fill(hidden, torch.finfo(scores.dtype).min))
        return weights.masked_fill(hidden, 0.0)


Normaliser = Normalizer  # the former spelling


class Weighting:
    """A factor on each weight, after normalising: weights that were a distribution are then none."""

    aliases: ClassVar[tuple[str, ...]] = ()

    def factors(self, pairs: Pairs) -> Tensor:
        """The factors of this tile, ≥ 0, broadcasting to (B, H, Tq, Tk)."""
        raise NotImplementedError

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError where this weighting cannot belong to weights of this shape."""


class Mask:
    """Which pairs may attend: True means "may". Never negated; a float term is a bias, not a mask."""

    aliases: ClassVar[tuple[str, ...]] = ()
    # whether `alone` can be asked
    splits: ClassVar[bool] = False

    def allowed(self, pairs: Pairs) -> Tensor:
        """A boolean tensor that broadcasts to (B, H, Tq, Tk) of this tile."""
        raise NotImplementedError

    def span(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """The first and the last key that each query sees, (B|1, H|1, Tq|1, 1) each, where it sees all between them.

        Takes pairs with every key. The two may lie beyond the keys; a query sees none where the last comes before the first.
        None where what a query sees has gaps, or needs a look at every pair.
        """
        return None

    def reach(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """As `span`, but what lies between the two need not all be seen: nothing beyond them is."""
        return self.span(pairs)

    def seen(self, pairs: Pairs) -> Tensor | None:
        """Return the keys that any of these queries may see, (Tk,) boolean, of pairs with every key; None if `reach` says as much."""
        return None

    def alone(self, sequence: int, keys: int) -> Mask | None:
        """The same for one sequence of the batch and its first keys, beyond which it sees none; None if it hides none of these."""
        raise NotImplementedError

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError where this mask cannot belong to scores of this shape."""

    def __and__(self, other: Mask) -> Mask:
        return Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Either(self, other)

    def draw(self, queries: int = 8, keys: int | None = None, *, head: int = 0, sequence: int = 0, heads: int = 1) -> str:
        """A picture in text, a line a query and a mark a key: ■ may attend, · may not.

        Args:
            queries: how many queries, counted from 1; the last stands on the last key.
            keys: how many keys; as many as queries if not given.
            head: the head to draw, from 0.
            sequence: the sequence of the batch to draw, from 0.
            heads: how many heads there are.
        """
        keys = queries if keys is None else keys
        rows = torch.arange(queries)
        pairs = Pairs(rows, torch.arange(keys), (rows + keys - queries)[None], max(heads, head + 1))
        seen = self.allowed(pairs)
        seen = seen.expand(max(seen.shape[0], sequence + 1), max(seen.shape[1], head + 1), queries, keys)[sequence, head]
        return "\n".join("".join("■" if may else "·" for may in row) for row in seen.tolist())

    def __str__(self) -> str:
        """The mask's name and settings, and its picture where eight queries can have one."""
        try:
            return f"{self!r}\n{self.draw()}"
        except (RuntimeError, IndexError, ShapeError):
            return repr(self)


def any_seen(masks: Iterable[Mask], pairs: Pairs) -> Tensor | None:
    """Which keys any of the masks lets be seen, as `Mask.seen`; of one that does not know, all within its reach."""
    some = [(mask, mask.seen(pairs)) for mask in masks]
    if all(seen is None for _, seen in some):
        return None
    found = torch.zeros_like(pairs.columns, dtype=torch.bool)
    for mask, seen in some:
        if seen is None:
            reach = mask.reach(pairs)
            if reach is None:
                return None
            seen = (pairs.columns >= reach[0].amin()) & (pairs.columns <= reach[1].amax())
        found |= seen
    return found


@dataclass(frozen=True)
class Both(Mask):
    """A pair may attend where both masks allow it: `one & other`."""

    one: Mask
    other: Mask

    def allowed(self, pairs: Pairs) -> Tensor:
        """The common part, broadcast."""
        return self.one.allowed(pairs) & self.other.allowed(pairs)

    def span(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """From the later beginning to the earlier end."""
        one, other = self.one.span(pairs), self.other.span(pairs)
        if one is None or other is None:
            return None
        return torch.maximum(one[0], other[0]), torch.minimum(one[1], other[1])

    def reach(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """As `span`; one that knows is enough."""
        one, other = self.one.reach(pairs), self.other.reach(pairs)
        if one is None or other is None:
            return one or other
        return torch.maximum(one[0], other[0]), torch.minimum(one[1], other[1])

    def seen(self, pairs: Pairs) -> Tensor | None:
        """What both let be seen; one that knows is enough."""
        one, other = self.one.seen(pairs), self.other.seen(pairs)
        return one & other if one is not None and other is not None else one if other is None else other

    @property
    def splits(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """If both do."""
        return self.one.splits and self.other.splits

    def alone(self, sequence: int, keys: int) -> Mask | None:
        """What is left of both."""
        one, other = self.one.alone(sequence, keys), self.other.alone(sequence, keys)
        return one & other if one is not None and other is not None else one if other is None else other

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Both must fit."""
        self.one.check(batch, heads, queries, keys)
        self.other.check(batch, heads, queries, keys)

    def __repr__(self) -> str:
        return f"({self.one!r} & {self.other!r})"


@dataclass(frozen=True)
class Either(Mask):
    """A pair may attend where one of the masks allows it: `one | other`."""

    one: Mask
    other: Mask

    def allowed(self, pairs: Pairs) -> Tensor:
        """The union, broadcast."""
        return self.one.allowed(pairs) | self.other.allowed(pairs)

    def reach(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """From the earlier beginning to the later end."""
        one, other = self.one.reach(pairs), self.other.reach(pairs)
        if one is None or other is None:
            return None
        return torch.minimum(one[0], other[0]), torch.maximum(one[1], other[1])

    def seen(self, pairs: Pairs) -> Tensor | None:
        """What either lets be seen; of one that does not know, all within its reach."""
        return any_seen((self.one, self.other), pairs)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Both must fit."""
        self.one.check(batch, heads, queries, keys)
        self.other.check(batch, heads, queries, keys)

    def __repr__(self) -> str:
        return f"({self.one!r} | {self.other!r})"


class Position(nn.Module):
    """Where tokens stand, for the kinds that act inside attention: by turning queries and keys, or by a bias."""

    aliases: ClassVar[tuple[str, ...]] = ()
    # whether `turn` does anything; and whether `bias` does
    turns: ClassVar[bool] = False
    biases: ClassVar[bool] = False

    @classmethod
    def for_heads(cls, heads: int) -> Self:
        """The position a module builds from its name alone, knowing the number of heads."""
        return cls()

    def turn(self, features: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys (B, H, T, D) turned by where they stand, positions (B|1, T)."""
        return features

    def bias(self, pairs: Pairs) -> Tensor:
        """A term (B|1, H, Tq, Tk) added to the scores of this tile."""
        raise NotImplementedError

    def check(self, heads: int, width: int) -> None:
        """Raise ShapeError where this position cannot serve so many heads or such a width."""
