"""A call of attention: the chosen parts and all that the choice of a backend depends on.

`prepare` checks a call once, gives every tensor its four axes, and builds the Call that every implementation takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attent.attention import checks, choices
from attent.attention.base import LoweredSide, Mask, Normalizer, Pairs, Position, Score, Weighting
from attent.attention.mask_info import visible
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.errors import ArgumentError, ShapeError
from attent.ops.eligibility import is_readable
from attent.registry import keyword_aliases


@dataclass(frozen=True)
class Call:
    """A checked call without its queries, keys and values."""

    score: Score
    normalizer: Normalizer
    mask: Mask | None
    bias: Tensor | None  # (B|1, H|1, Tq|1, Tk|1)
    soft_cap: float | None
    position: Position | None
    start: int | Tensor  # where the first query stands, one number or (B,)
    dropout: float
    seed: int | Tensor | None
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    query_width: int
    value_width: int
    dtype: torch.dtype
    device: torch.device
    # whether the keys came lowered already, from a cache
    lowered: bool
    # how many axes the caller's tensors had
    axes: int
    weighting: Weighting | None = None

    @property
    def is_distribution(self) -> bool:
        """True if the weights of each row that is not fully masked are nonnegative and sum to one."""
        return self.normalizer.is_distribution and self.weighting is None

    @property
    def is_empty(self) -> bool:
        """True if there is no pair to compute: no sequence, head, query or key."""
        return not (self.batch and self.heads and self.queries and self.keys)

    @property
    def accumulation_dtype(self) -> torch.dtype:
        """The type in which scores are summed and normalised: float32 at least."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def pairs(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Pairs:
        """The pairs of some rows, or of all, with some keys in ascending order, or all."""
        rows = torch.arange(self.queries, device=self.device) if rows is None else rows
        columns = torch.arange(self.keys, device=self.device) if columns is None else columns
        positions = rows + self.start[:, None] if isinstance(self.start, Tensor) else (rows + self.start)[None]
        return Pairs(rows, columns, positions, self.heads)

    def allowed(self, pairs: Pairs) -> Tensor | None:
        """Return which of the pairs may attend, broadcasting to (B, H, Tq, Tk); None if all may."""
        allowed = None if self.mask is None else self.mask.allowed(pairs)
        if self.bias is not None:
            # −∞ is how a bias hides a pair; said here, it cannot make a row NaN
            seen = self.bias_of(pairs, self.bias) != -torch.inf
            allowed = seen if allowed is None else allowed & seen
        return allowed

    def bias_of(self, pairs: Pairs, bias: Tensor) -> Tensor:
        """The part of a bias tensor that belongs to these pairs."""
        if bias.shape[3] != 1 and len(pairs.key_index) != self.keys:
            bias = bias[..., pairs.key_index]
        return bias if bias.shape[2] == 1 else bias[:, :, pairs.query_index]

    def bias_term(self, bias: Tensor) -> Tensor:
        """A bias as scores take it: of their type, finite, and half the lowest number at least, so that no pair ties with a hidden one."""
        return bias.to(self.accumulation_dtype).clamp(min=torch.finfo(self.accumulation_dtype).min / 2)

    def repeat_kv(self, features: Tensor) -> Tensor:
        """Keys or values (B, G, …) repeated for the query heads that share them: (B, H, …)."""
        return features if features.shape[1] == self.heads else features.repeat_interleave(self.heads // features.shape[1], 1)

    def repeat_kv_side(self, side: LoweredSide) -> LoweredSide:
        """A side of the score repeated for the query heads that share it."""
        if side.features.shape[1] == self.heads:
            return side
        return side.map(self.repeat_kv)

    def restore_axes(self, output: Tensor) -> Tensor:
        """A result (B, H, …) with as many axes as the caller's tensors had."""
        return output if self.axes == 4 else output[:, 0] if self.axes == 3 else output[0, 0]


class Prepared(NamedTuple):
    """A call and its tensors, checked: the arguments of reference.steps and of every implementation."""

    call: Call
    query: Tensor  # (B, H, Tq, Dq)
    key: LoweredSide  # features (B, G, Tk, D')
    value: Tensor  # (B, G, Tk, Dv)


@keyword_aliases(normaliser="normalizer")
def prepare(
    query: Tensor,
    key: Tensor | LoweredSide,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | Tensor | None = None,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
    position: str | Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Prepared:
    """Check the arguments of `attend` (see there) and give every tensor its four axes.

    A key that is a LoweredSide was lowered, and turned, before; its axes are four already.
    """
    features = key.features if isinstance(key, LoweredSide) else key
    lowered = isinstance(key, LoweredSide)
    query, features, value = checks.agreeing(query, features, value, lowered=lowered)
    axes = query.dim()
    if axes != 4 or features.dim() != 4 or value.dim() != 4:
        four = [checks.four_axes(tensor) for tensor in (query, features, value)]
        checks.alike(query, value if lowered else features, value)
        query, features, value = four
    given = (query.shape, features.shape, value.shape, query.dtype, query.device, axes, score, normalizer, mask)
    more = lowered or not (bias is soft_cap is position is query_start is lengths is weighting is seed is None and dropout == 0.0)
    if not more and choices.ready(score, normalizer, mask) and not torch.compiler.is_compiling():
        return Prepared(_for_inputs(_remembered(*given), query, features), query, LoweredSide(features), value)
    where = choices.position(position)
    call = _call(
        *given, lowered=lowered, bias=bias, soft_cap=soft_cap, position=where,
        query_start=query_start, lengths=lengths, weighting=weighting, dropout=dropout, seed=seed,
    )  # fmt: skip
    if where is not None and where.rotates:
        pairs = call.pairs()
        query = where.rotate(query, pairs.query_position)
        features = features if lowered else where.rotate(features, pairs.key_index[None])
    if isinstance(key, LoweredSide):
        return Prepared(call, query, key._replace(features=features), value)
    return Prepared(_for_inputs(call, query, features), query, LoweredSide(features), value)


def _for_inputs(call: Call, query: Tensor, key: Tensor) -> Call:
    """The call, with a score that keeps its digits for these queries and keys, where they can be read before anything is computed."""
    if call.is_empty or call.device.type != "cpu" or not is_readable(query):
        return call
    score = call.score.for_inputs(query, key)
    if score is not call.score and (seen := visible(call)) is not None:
        # keys that no query sees have no say in it
        if seen.shape[1] not in (1, key.shape[1]):
            seen = seen.unflatten(1, (key.shape[1], -1)).any(2)
        score = call.score.for_inputs(query, key, seen)
    return call if score is call.score else replace(call, score=score)


def _call(
    query: torch.Size,
    key: torch.Size,
    value: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
    axes: int,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor],
    normalizer: str | Normalizer,
    mask: str | Mask | Tensor | None,
    *,
    lowered: bool = False,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
    position: Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Call:
    """Check the arguments for tensors of these shapes and build the call."""
    checks.shapes(query, key, value)
    checks.numbers(dropout, seed, soft_cap)
    chosen = choices.score(score)
    (batch, heads, queries, query_width), (_, key_heads, keys, key_width) = query, key
    # what a lowered key's width was before, its score knows
    chosen.check(query_width, chosen.widths[1] if lowered and chosen.widths is not None else key_width, heads)
    if position is not None:
        position.check(heads, query_width)
    lengths = None if lengths is None else checks.lengths_within(lengths, keys)
    full, chosen_normalizer = (batch, heads, queries, keys), choices.normalizer(normalizer)
    checks.distribution(chosen_normalizer, heads, keys, device, torch.float64 if dtype == torch.float64 else torch.float32)
    call = Call(
        score=chosen,
        normalizer=chosen_normalizer,
        mask=_mask(mask, lengths, axes, full),
        bias=None if bias is None else checks.four_axes_of_bias(bias, axes, full),
        soft_cap=soft_cap,
        position=position if position is not None and position.biases else None,
        start=checks.first_position(query_start, lengths, batch, queries, keys),
        dropout=dropout,
        seed=seed,
        batch=batch,
        heads=heads,
        key_heads=key_heads,
        queries=queries,
        keys=keys,
        query_width=query_width,
        value_width=value[-1],
        dtype=dtype,
        device=device,
        lowered=lowered,
        axes=axes,
        weighting=_weighting(weighting, full),
    )
    checks.on_device(device, bias=call.bias, query_start=call.start, lengths=lengths)
    return call


# Where names and shapes say everything, they say the same each time.
_remembered = lru_cache(maxsize=256)(_call)


def _mask(mask: str | Mask | Tensor | None, lengths: Tensor | None, axes: int, shape: tuple[int, int, int, int]) -> Mask | None:
    if isinstance(mask, Tensor):
        wide = mask[:, None] if mask.dim() == 3 and axes == 3 else mask
        if wide.dim() not in (2, 4):
            raise ShapeError(f"mask must be (B|1, H|1, Tq, Tk) = {shape}, got {tuple(mask.shape)}")
        mask = Table(wide)
    chosen = choices.mask(mask)
    if lengths is not None:
        padding = Padding(lengths)
        chosen = padding if chosen is None else chosen & padding
    if chosen is not None:
        chosen.check(*shape)
    return chosen


def _weighting(weighting: Weighting | None, shape: tuple[int, int, int, int]) -> Weighting | None:
    if weighting is None:
        return None
    if not isinstance(weighting, Weighting):
        raise ArgumentError(f"weighting must be a Weighting, got {weighting!r}")
    weighting.check(*shape)
    return weighting


def lower_key(score: Score, key: Tensor, heads: int, center: Tensor | None = None, start: int = 0) -> LoweredSide:
    """The key side of a score, lowered as a cache keeps it: in float32 at least where lowering rounds.

    Args:
        score: the score.
        key: (B, G, Tk, Dk).
        heads: H; a score with parameters of its own for each head gets a key side for each.
        center: that of the keys lowered before, if there were any.
        start: how many these are.
    """
    if score.heads is not None and key.shape[1] != heads:
        key = key.repeat_interleave(heads // key.shape[1], 1)
    if not score.lowers_exactly and key.dtype in (torch.bfloat16, torch.float16):
        key = key.float()
    return score.lower_later_key(key, start, center) if start else score.lower_key(key, center)
