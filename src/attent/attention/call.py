"""One call of attention: the parts that were chosen, and what a choice of implementation depends on.

`prepare` checks a call once, gives every tensor its four axes, and builds the Call that every implementation takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attent.attention import choices
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.attention.parts import Mask, Normaliser, Pairs, Position, Score, Side
from attent.errors import ArgumentError, DeviceError, DTypeError, ShapeError


@dataclass(frozen=True)
class Call:
    """What is to be computed, without the queries, keys and values themselves."""

    score: Score
    normaliser: Normaliser
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

    @property
    def exact(self) -> torch.dtype:
        """The type in which scores are summed and normalised: float32 at least."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def pairs(self, rows: Tensor | None = None) -> Pairs:
        """The pairs of some rows, or of all, with every key."""
        rows = torch.arange(self.queries, device=self.device) if rows is None else rows
        positions = (rows + self.start)[None] if isinstance(self.start, int) else rows + self.start[:, None]
        return Pairs(rows, torch.arange(self.keys, device=self.device), positions, self.heads)

    def allowed(self, pairs: Pairs) -> Tensor | None:
        """Which of the pairs may attend, broadcasting to (B, H, Tq, Tk); None where all may."""
        allowed = None if self.mask is None else self.mask.allowed(pairs)
        if self.bias is not None:
            # −∞ is how a bias hides a pair; said here, it cannot make a row NaN
            seen = self.bias_of(pairs, self.bias) != -torch.inf
            allowed = seen if allowed is None else allowed & seen
        return allowed

    def bias_of(self, pairs: Pairs, bias: Tensor) -> Tensor:
        """The rows of a bias tensor that belong to these pairs."""
        return bias if bias.shape[2] == 1 else bias[:, :, pairs.rows]

    def spread(self, features: Tensor) -> Tensor:
        """Keys or values (B, G, …) repeated for the query heads that share them: (B, H, …)."""
        return features if features.shape[1] == self.heads else features.repeat_interleave(self.heads // features.shape[1], 1)

    def spread_side(self, side: Side) -> Side:
        """A side of the score repeated for the query heads that share it."""
        return Side(*(None if part is None else self.spread(part) for part in side))  # pyright: ignore[reportArgumentType]

    def restored(self, output: Tensor) -> Tensor:
        """A result (B, H, …) with as many axes as the caller's tensors had."""
        return output if self.axes == 4 else output[:, 0] if self.axes == 3 else output[0, 0]


class Prepared(NamedTuple):
    """A call and its tensors, checked: the arguments of formula.steps and of every implementation."""

    call: Call
    query: Tensor  # (B, H, Tq, Dq)
    key: Side  # features (B, G, Tk, D')
    value: Tensor  # (B, G, Tk, Dv)


def prepare(
    query: Tensor,
    key: Tensor | Side,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
    normaliser: str | Normaliser = "softmax",
    mask: str | Mask | Tensor | None = None,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
    position: str | Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Prepared:
    """Check the arguments of `attend` (see there) and give every tensor its four axes.

    A key that is a Side was lowered, and turned, before; its axes are four already.
    """
    features = key.features if isinstance(key, Side) else key
    lowered = isinstance(key, Side)
    query, features, value = _agreeing(query, features, value, lowered=lowered)
    axes = query.dim()
    query, features, value = (_four_axes(tensor) for tensor in (query, features, value))
    _check_shapes(query, features, value)
    chosen = choices.score(score)
    # what a lowered key's width was before, its score knows
    key_width = chosen.widths[1] if lowered and chosen.widths is not None else features.shape[-1]
    chosen.check(query.shape[-1], key_width, query.shape[1])
    where = choices.position(position)
    if where is not None:
        where.check(query.shape[1], query.shape[-1])
    batch, heads, queries, keys = query.shape[0], query.shape[1], query.shape[2], features.shape[2]
    call = Call(
        score=chosen,
        normaliser=choices.normaliser(normaliser),
        mask=_mask(mask, lengths, axes, (batch, heads, queries, keys)),
        bias=None if bias is None else _bias(bias, axes, query, keys),
        soft_cap=soft_cap,
        position=where if where is not None and where.biases else None,
        start=_start(query_start, lengths, batch, queries, keys),
        dropout=dropout,
        seed=seed,
        batch=batch,
        heads=heads,
        key_heads=features.shape[1],
        queries=queries,
        keys=keys,
        query_width=query.shape[-1],
        value_width=value.shape[-1],
        dtype=query.dtype,
        device=query.device,
        lowered=lowered,
        axes=axes,
    )
    _check_numbers(call)
    if where is not None and where.turns:
        pairs = call.pairs()
        query = where.turn(query, pairs.positions)
        features = features if lowered else where.turn(features, pairs.columns[None])
    return Prepared(call, query, key._replace(features=features) if isinstance(key, Side) else Side(features), value)


def _agreeing(query: Tensor, key: Tensor, value: Tensor, *, lowered: bool) -> tuple[Tensor, Tensor, Tensor]:
    tensors = (query, key, value)
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ArgumentError(f"query, key and value must be tensors, got {', '.join(type(t).__name__ for t in tensors)}")
    if not all(tensor.is_floating_point() for tensor in tensors):
        raise DTypeError(f"query, key and value must be floating point, got {', '.join(str(t.dtype) for t in tensors)}")
    if len({tensor.device for tensor in tensors}) > 1:
        raise DeviceError(f"query, key and value must lie on one device, got {', '.join(str(t.device) for t in tensors)}")
    if query.dtype == key.dtype == value.dtype:
        return query, key, value
    if lowered and key.dtype == torch.float32 and query.dtype == value.dtype and query.dtype in (torch.bfloat16, torch.float16):
        # a cache keeps lowered keys in float32 where lowering would have rounded them
        return query, key, value
    if torch.is_autocast_enabled(query.device.type):
        common = torch.get_autocast_dtype(query.device.type)
        return query.to(common), key.to(common), value.to(common)
    raise DTypeError(f"query, key and value must have one dtype, got {', '.join(str(t.dtype) for t in tensors)}")


def _four_axes(tensor: Tensor) -> Tensor:
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() == 2:
        return tensor[None, None]
    raise ShapeError(f"query, key and value must be (B, H, T, D), (B, T, D) or (T, D), got {tuple(tensor.shape)}")


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    (batch, heads, _, _), (_, key_heads, keys, _) = query.shape, key.shape
    if key.shape[0] != batch:
        raise ShapeError(f"key must be (B, …) with B = {batch} as in query, got {tuple(key.shape)}")
    if tuple(value.shape[:3]) != (batch, key_heads, keys):
        raise ShapeError(f"value must be (B, H, Tk, Dv) = ({batch}, {key_heads}, {keys}, Dv) as key, got {tuple(value.shape)}")
    if key_heads == 0 or heads % key_heads:
        raise ShapeError(f"query heads must be a multiple of key heads, got {heads} and {key_heads}")


def _check_numbers(call: Call) -> None:
    if not 0.0 <= call.dropout < 1.0:
        raise ArgumentError(f"dropout must be in [0, 1), got {call.dropout}")
    if call.dropout and call.seed is None:
        raise ArgumentError("dropout needs a seed: its mask is a function of (seed, b, h, i, j)")
    if call.soft_cap is not None and not call.soft_cap > 0:
        raise ArgumentError(f"soft_cap must be > 0, got {call.soft_cap}")
    for name, tensor in (("bias", call.bias), ("query_start", call.start)):
        if isinstance(tensor, Tensor) and tensor.device != call.device:
            raise DeviceError(f"{name} must lie on {call.device} as query, got {tensor.device}")


def _mask(mask: str | Mask | Tensor | None, lengths: Tensor | None, axes: int, shape: tuple[int, int, int, int]) -> Mask | None:
    if isinstance(mask, Tensor):
        wide = mask[:, None] if mask.dim() == 3 and axes == 3 else mask
        if wide.dim() not in (2, 4):
            raise ShapeError(f"mask must be (B|1, H|1, Tq, Tk) = {shape}, got {tuple(mask.shape)}")
        mask = Table(wide)
    chosen = choices.mask(mask)
    if lengths is not None:
        padding = Padding(lengths)
        _check_lengths(lengths, shape[3])
        chosen = padding if chosen is None else chosen & padding
    if chosen is not None:
        chosen.check(*shape)
    return chosen


def _check_lengths(lengths: Tensor, keys: int) -> None:
    if lengths.numel() and known(lambda: (lengths.min() < 0) | (lengths.max() > keys), lengths.device):
        raise ShapeError(f"lengths must be from 0 to Tk = {keys}, got {int(lengths.min())} to {int(lengths.max())}")


def _bias(bias: Tensor, axes: int, query: Tensor, keys: int) -> Tensor:
    if not bias.is_floating_point():
        raise DTypeError(f"bias must be floating point, got {bias.dtype}; a boolean belongs to mask")
    full = (query.shape[0], query.shape[1], query.shape[2], keys)
    wide = bias[:, None] if bias.dim() == 3 and axes == 3 else bias[None, None] if bias.dim() == 2 else bias
    if wide.dim() != 4 or any(have not in (1, need) for have, need in zip(wide.shape, full, strict=True)):
        raise ShapeError(f"bias must be (B|1, H|1, Tq|1, Tk|1) = {full}, got {tuple(bias.shape)}")
    return wide


def _start(start: int | Tensor | None, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    if start is None:
        return keys - queries if lengths is None else lengths - queries
    if isinstance(start, Tensor):
        if start.is_floating_point() or tuple(start.shape) not in ((1,), (batch,)):
            raise ShapeError(f"query_start must be a whole number or (B,) = ({batch},) of them, got {start.dtype} {tuple(start.shape)}")
        return start
    if isinstance(start, bool) or not isinstance(start, int):
        raise ArgumentError(f"query_start must be a whole number or (B,) of them, got {type(start).__name__}")
    return start


def known(flag: Callable[[], Tensor], device: torch.device) -> bool:
    """Whether a condition holds, asked only where reading the answer back costs little: on a CPU, outside compiled graphs.

    Elsewhere the answer is False, and the caller does the work that the condition would have spared.
    """
    return device.type == "cpu" and not torch.compiler.is_compiling() and bool(flag())


def lower_key(score: Score, key: Tensor, heads: int, origin: Tensor | None = None) -> Side:
    """The key side of a score, lowered as a cache keeps it: in float32 at least where lowering rounds.

    Args:
        score: the score.
        key: (B, G, Tk, Dk).
        heads: H; a score with parameters of its own for each head gets a key side for each.
        origin: that of the keys lowered before, if there were any.
    """
    if score.heads is not None and key.shape[1] != heads:
        key = key.repeat_interleave(heads // key.shape[1], 1)
    if not score.lowers_exactly and key.dtype in (torch.bfloat16, torch.float16):
        key = key.float()
    return score.lower_key(key, origin)
