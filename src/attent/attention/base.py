"""The interfaces of the formula's parts: score, normalizer, mask, position and weighting.

Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ over a database D = {(k₁, v₁) … (kₙ, vₙ)}, where α comes from a score (how well does
this key fit this query), a mask (may this query see this key), and a normalizer (scores → weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from attent.errors import ShapeError


class LoweredSide(NamedTuple):
    """Lowered queries or keys of a score; a cache stores the key side, computed once."""

    features: Tensor  # (B, H, T, D')
    bias: Tensor | None = None  # (B, H, T)
    center: Tensor | None = None  # (B, H, 1, D), the point subtracted from both sides

    def map(self, function: Callable[[Tensor], Tensor]) -> LoweredSide:
        """Apply a function to each tensor."""
        return LoweredSide(
            function(self.features), *(None if part is None else function(part) for part in (self.bias, self.center))
        )


@dataclass(frozen=True)
class Pairs:
    """The pairs (query i, key j) of one tile, by index in this call and by position in the sequence."""

    query_index: Tensor  # (Tq,)
    key_index: Tensor  # (Tk,) ascending; the keys' positions too
    query_position: Tensor  # (B|1, Tq)
    heads: int

    def broadcast_positions(self) -> tuple[Tensor, Tensor]:
        """Return query positions (B|1, 1, Tq, 1) and key positions (Tk,), shaped for comparison."""
        return self.query_position[:, None, :, None], self.key_index


class Score(nn.Module):
    """A measure of how well a key fits a query: `forward(query, key)` is the specification.

    query (B, H, Tq, Dq) and key (B, H, Tk, Dk) give scores (B, H, Tq, Tk). A score that splits into a query half and a
    key half derives from DotScore or TanhScore; any other runs tiled.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[Literal["dot", "tanh"] | None] = None
    # True if lowering changes no bit, so that 16-bit inputs stay exact
    lowers_exactly: ClassVar[bool] = False
    # the number of heads, if each has its own parameters
    heads: int | None = None
    # the (query, key) widths that the parameters are made for
    widths: tuple[int, int] | None = None
    # the number of keys, if each position has its own parameters
    maximum_length: int | None = None

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Build the score from its name alone, for a module of these widths and heads."""
        return cls()

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Raise ShapeError if the parameters do not fit these widths or heads."""
        if self.widths is not None and self.widths != (query_width, key_width):
            raise ShapeError(
                f"{type(self).__name__} was made for widths (query, key) = {self.widths}, got "
                f"{(query_width, key_width)}"
            )
        if self.heads is not None and self.heads != heads:
            raise ShapeError(f"{type(self).__name__} was made for {self.heads} heads, got {heads}")

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Compute every intermediate by name, the scores last."""
        return {"scores": self(query, key)}

    def symbols(self) -> dict[str, Tensor]:
        """Return the parameters by their symbols in the equation, with a leading axis of heads where `heads` is set."""
        return dict(self.named_parameters())

    def center(self, key: Tensor, visible: Tensor | None = None) -> Tensor | None:
        """Return a point (B, H, 1, D) to subtract from both sides, so that the lowered form does not cancel digits.

        Only `visible` keys (B|1, H|1, Tk) count; by default, all do.
        """
        return None

    def for_inputs(self, query: Tensor, key: Tensor, visible: Tensor | None = None) -> Score:
        """Return this score, or one not lowered if lowering would lose digits; `visible` keys are (B|1, G|1, Tk)."""
        return self

    def per_pair(self, query_width: int) -> int:
        """Return how many numbers per pair a score holds in memory while it is computed; tiles are sized by this.

        By default √Dq, between the 1 of a product and the Dq of differences.
        """
        return max(int(math.sqrt(query_width)), 1)

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Compute the query's half of the score."""
        return LoweredSide(query)

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Compute the key's half of the score, relative to the `center` of the sequence's earlier keys."""
        return LoweredSide(key)

    def lower_later_key(self, key: Tensor, start: int, center: Tensor | None = None) -> LoweredSide:
        """Lower keys at positions from `start` on; differs only for a score with parameters per position."""
        return self.lower_key(key, center)

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Compute the scores (B, H, Tq, Tk) of two lowered sides."""
        return self(query.features, key.features)

    def extra_repr(self) -> str:
        """Return the number of heads, if each has its own parameters."""
        return "" if self.heads is None else f"heads={self.heads}"


class DotScore(Score):
    """A score of dot form: scale · q'·k' + a bias of the query + a bias of the key."""

    form: ClassVar[Literal["dot", "tanh"] | None] = "dot"

    def scale(self, width: int) -> float:
        """Return the factor on q'·k', given the width of q'."""
        return 1.0

    def per_pair(self, query_width: int) -> int:
        """Return 1: only the score is held."""
        return 1

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Also raise ShapeError if query and key differ in width and no parameters connect them."""
        super().check(query_width, key_width, heads)
        if self.widths is None and query_width != key_width:
            raise ShapeError(
                f"{type(self).__name__} needs queries and keys of one width, got Dq = {query_width} and Dk = "
                f"{key_width}"
            )

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Compute scale · q'·k' + biases, (B, H, Tq, Tk)."""
        scores, scale = query.features @ key.features.transpose(-2, -1), self.scale(query.features.shape[-1])
        scores = scores if scale == 1.0 else scores * scale
        for bias, axis in ((query.bias, -1), (key.bias, -2)):
            scores = scores if bias is None else scores + bias.unsqueeze(axis)
        return scores


class TanhScore(Score):
    """A score of tanh form: v·tanh(q' + k'), with its own parameters."""

    form: ClassVar[Literal["dot", "tanh"] | None] = "tanh"
    # the width inside the tanh
    hidden: int

    def per_pair(self, query_width: int) -> int:
        """Return the width inside the tanh."""
        return self.hidden

    def output_weights(self, like: Tensor) -> Tensor:
        """Return v as (H|1, 1, 1, hidden), of `like`'s type."""
        raise NotImplementedError

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Compute v·tanh(q' + k'), (B, H, Tq, Tk)."""
        hidden = torch.tanh(query.features[..., :, None, :] + key.features[..., None, :, :])  # (B, H, Tq, Tk, hidden)
        return (hidden * self.output_weights(hidden)).sum(-1)


class Normalizer:
    """Scores → weights. Hidden pairs and fully masked rows get exactly zero."""

    aliases: ClassVar[tuple[str, ...]] = ()
    # True if each row's weights are nonnegative and sum to one
    is_distribution: ClassVar[bool] = True
    # True if adding a number to a row of scores changes no weight
    shift_invariant: ClassVar[bool] = True

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the weights of finite scores (…, Tk); the lowest finite number marks a hidden pair."""
        raise NotImplementedError

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the weights of scores (…, Tq, Tk), counting only the `allowed` pairs.

        Hidden scores become the lowest finite number rather than −∞: a fully masked row stays finite, and its weights
        are set to zero.
        """
        if allowed is None or not scores.shape[-1]:
            return self.normalize(scores) if scores.shape[-1] else scores
        hidden = ~allowed
        return self.normalize(scores.masked_fill(hidden, torch.finfo(scores.dtype).min)).masked_fill(hidden, 0.0)

    def of_masked(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the weights of scores in which −∞ hides a pair; `allowed`, if known, marks the same pairs."""
        return self(scores, scores != -torch.inf if allowed is None else allowed)


class Weighting:
    """A factor on each normalized weight; rows then need not sum to one."""

    aliases: ClassVar[tuple[str, ...]] = ()
    is_nonnegative: ClassVar[bool] = True  # no factor is less than 0

    def factors(self, pairs: Pairs) -> Tensor:
        """Return this tile's factors, broadcasting to (B, H, Tq, Tk)."""
        raise NotImplementedError

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError if this weighting does not fit weights of this shape."""


class KeyRange(NamedTuple):
    """The keys that each query may see: (B|1, H|1, Tq|1, 1) bounds, which may lie outside [0, Tk).

    If `exact`, each query sees every key in its range.
    """

    begin: Tensor
    end: Tensor
    exact: bool


class Mask:
    """The pairs that may attend: True means "may". Never negated; a float term is a bias, not a mask.

    A mask defines `allowed` and, if the keys of each query lie within a range, `key_range`; `attention/mask_info.py`
    derives the rest.
    """

    aliases: ClassVar[tuple[str, ...]] = ()

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return a boolean tensor that broadcasts to (B, H, Tq, Tk) of this tile."""
        raise NotImplementedError

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return each query's range of keys, given pairs with every key; None if only `allowed` determines it."""
        return None

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Return the keys that any of these queries may see, (Tk,) boolean, given pairs with every key.

        None if the key range already determines them, or only `allowed` does.
        """
        return None

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError if this mask does not fit scores of this shape."""

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def draw(
        self, queries: int = 8, keys: int | None = None, *, head: int = 0, sequence: int = 0, heads: int = 1
    ) -> str:
        """Draw the mask of a head and a sequence as text, a line per query and a mark per key: ■ may attend, · may not.

        By default there are as many keys as queries. The last query is at the last key's position.
        """
        keys, index = queries if keys is None else keys, torch.arange(queries)
        allowed = self.allowed(Pairs(index, torch.arange(keys), (index + keys - queries)[None], max(heads, head + 1)))
        allowed = allowed.expand(max(allowed.shape[0], sequence + 1), max(allowed.shape[1], head + 1), queries, keys)
        rows = allowed[sequence, head].tolist()
        return "\n".join("".join("■" if is_allowed else "·" for is_allowed in row) for row in rows)

    def __str__(self) -> str:
        """Return the name, the settings and, if the mask fits eight queries, the drawing."""
        try:
            return f"{self!r}\n{self.draw()}"
        except (RuntimeError, IndexError, ShapeError):
            return repr(self)


def keys_visible_in_any(masks: Sequence[Mask], pairs: Pairs) -> Tensor | None:
    """Return the keys that any of the masks makes visible, in the form of `Mask.visible_keys`.

    A mask whose `visible_keys` is None counts with its whole key range.
    """
    visible = [mask.visible_keys(pairs) for mask in masks]
    if all(keys is None for keys in visible):
        return None
    total = torch.zeros_like(pairs.key_index, dtype=torch.bool)
    for mask, keys in zip(masks, visible, strict=True):
        if keys is None:
            if (key_range := mask.key_range(pairs)) is None:
                return None
            keys = (pairs.key_index >= key_range.begin.amin()) & (pairs.key_index < key_range.end.amax())
        total |= keys
    return total


@dataclass(frozen=True)
class _Join(Mask):
    left: Mask
    right: Mask

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError if either mask does not fit."""
        self.left.check(batch, heads, queries, keys)
        self.right.check(batch, heads, queries, keys)


@dataclass(frozen=True, repr=False)
class And(_Join):
    """The pairs that both masks allow: `left & right`."""

    def allowed(self, pairs: Pairs) -> Tensor:
        """Intersect the two."""
        return self.left.allowed(pairs) & self.right.allowed(pairs)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Intersect the ranges; a single range is enough, but the result is then not exact."""
        left, right = self.left.key_range(pairs), self.right.key_range(pairs)
        if left is None or right is None:
            return (single := left or right) and single._replace(exact=False)
        return KeyRange(
            torch.maximum(left.begin, right.begin), torch.minimum(left.end, right.end), left.exact and right.exact
        )

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Intersect the keys; one of the two is enough."""
        left, right = self.left.visible_keys(pairs), self.right.visible_keys(pairs)
        return left & right if left is not None and right is not None else left if right is None else right

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


@dataclass(frozen=True, repr=False)
class Or(_Join):
    """The pairs that either mask allows: `left | right`."""

    def allowed(self, pairs: Pairs) -> Tensor:
        """Unite the two."""
        return self.left.allowed(pairs) | self.right.allowed(pairs)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the smallest range that covers both, which may have a gap."""
        left, right = self.left.key_range(pairs), self.right.key_range(pairs)
        if left is None or right is None:
            return None
        return KeyRange(torch.minimum(left.begin, right.begin), torch.maximum(left.end, right.end), exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Unite the keys."""
        return keys_visible_in_any((self.left, self.right), pairs)

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


class Position(nn.Module):
    """Positions inside attention: rotated queries and keys, or a bias on the scores."""

    aliases: ClassVar[tuple[str, ...]] = ()
    rotates: ClassVar[bool] = False  # True if `rotate` does anything
    biases: ClassVar[bool] = False  # True if `bias` does

    @classmethod
    def for_heads(cls, heads: int) -> Self:
        """Build the position from its name alone, for a module with this number of heads."""
        return cls()

    def with_heads(self, heads: int) -> Position:
        """Return the position adapted to this number of heads, if its bias depends on that number."""
        return self

    def rotate(self, features: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, T, D) by their positions (B|1, T)."""
        return features

    def bias(self, pairs: Pairs) -> Tensor:
        """Return a term (B|1, H, Tq, Tk) added to the scores of this tile."""
        raise NotImplementedError

    def bias_by_offset(self, offsets: Tensor) -> Tensor | None:
        """Return the bias (H|1, n) of pairs by offset: the key's position minus the query's, int64 (n,).

        None if the bias depends on more than the offset.
        """
        return None

    def check(self, heads: int, width: int) -> None:
        """Raise ShapeError if this position does not fit this number of heads or this width."""
