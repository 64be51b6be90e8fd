"""A call of attention: its tensors' sizes, the parts of the formula, and everything that determines its backend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import KeyRange, LoweredSide, Mask, Normalizer, Pairs, Position, Score, Weighting


@dataclass(frozen=True)
class Call:
    """A checked call without its queries, keys and values."""

    score: Score
    normalizer: Normalizer
    mask: Mask | None
    bias: Tensor | None  # (B|1, H|1, Tq|1, Tk|1)
    soft_cap: float | None
    position: Position | None
    start: int | Tensor  # the position of the first query, one number or (B,)
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
    # whether the keys are already lowered, from a cache
    lowered: bool
    # the number of axes of the caller's tensors
    axes: int
    weighting: Weighting | None = None
    # a logit without a value in each head's softmax, in the accumulation type, (1, H, 1, 1)
    sink: Tensor | None = None
    # changes the scores of some pairs, after the bias
    score_mod: Callable[[Tensor, Pairs], Tensor] | None = None

    @property
    def is_distribution(self) -> bool:
        """True if the weights of each row that is not fully masked are nonnegative and sum to one."""
        return self.normalizer.is_distribution and self.weighting is None and self.sink is None

    @property
    def is_empty(self) -> bool:
        """True if there is no pair to compute: no sequence, head, query or key."""
        return not (self.batch and self.heads and self.queries and self.keys)

    @property
    def accumulation_dtype(self) -> torch.dtype:
        """The type in which scores are summed and normalized: float32 at least."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def key_range(self) -> KeyRange | None:
        """The range of keys that the mask lets each query see; None without a mask, or if it has no range.

        Computed once per call; `dataclasses.replace` makes a new call, which computes its own.
        """
        # not functools.cached_property: its lock in Python 3.11 cannot be traced into a graph, and all calls would
        # share it
        known = vars(self)
        if "_key_range" not in known:
            known["_key_range"] = None if self.mask is None else self.mask.key_range(self.pairs())
        return known["_key_range"]

    def pairs(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Pairs:
        """Return the pairs of the given rows and the given keys in ascending order; all of them by default."""
        rows = torch.arange(self.queries, device=self.device) if rows is None else rows
        columns = torch.arange(self.keys, device=self.device) if columns is None else columns
        positions = rows + self.start[:, None] if isinstance(self.start, Tensor) else (rows + self.start)[None]
        return Pairs(rows, columns, positions, self.heads)

    def allowed(self, pairs: Pairs) -> Tensor | None:
        """Return which of the pairs may attend, broadcasting to (B, H, Tq, Tk); None if all may."""
        allowed = None if self.mask is None else self.mask.allowed(pairs)
        if self.bias is not None:
            # a bias hides a pair by −∞; as part of the mask, it cannot make a row NaN
            seen = self.bias_at_pairs(pairs, self.bias) != -torch.inf
            allowed = seen if allowed is None else allowed & seen
        return allowed

    def bias_at_pairs(self, pairs: Pairs, bias: Tensor) -> Tensor:
        """Return the part of a bias tensor that belongs to these pairs."""
        if bias.shape[3] != 1 and len(pairs.key_index) != self.keys:
            bias = bias[..., pairs.key_index]
        return bias if bias.shape[2] == 1 else bias[:, :, pairs.query_index]

    def bias_term(self, bias: Tensor) -> Tensor:
        """Return a bias in the form that is added to scores.

        It has the scores' type, is finite, and is at least half the lowest number, so that no pair ties with a hidden
        one.
        """
        bias, minimum = bias.to(self.accumulation_dtype), torch.finfo(self.accumulation_dtype).min / 2
        # not clamp: PyTorch 2.15 changed its gradient at the bound
        return bias.masked_fill(bias < minimum, minimum)

    def share_of_keys(self, scores: Tensor, heads: slice | None = None) -> Tensor:
        """Return the share of each row's softmax that the sink leaves to the keys, (B, H, Tq, 1).

        Args:
            scores: (B, H, Tq, Tk), −∞ for hidden pairs.
            heads: the heads of these scores; all by default.
        """
        assert self.sink is not None
        sink = self.sink if heads is None else self.sink[:, heads]
        # −∞ has no gradient in a row without keys
        lowest = torch.finfo(scores.dtype).min
        total = scores.masked_fill(scores < lowest, lowest).logsumexp(-1, keepdim=True)
        # not the sigmoid, whose gradient loses the digits of a small share of the sink
        return F.softplus(sink - total).neg().exp()

    def repeat_kv(self, features: Tensor) -> Tensor:
        """Return keys or values (B, G, …) repeated for the query heads that share them: (B, H, …)."""
        return (
            features
            if features.shape[1] == self.heads
            else features.repeat_interleave(self.heads // features.shape[1], 1)
        )

    def repeat_kv_side(self, side: LoweredSide) -> LoweredSide:
        """Return a side of the score repeated for the query heads that share it."""
        return side if side.features.shape[1] == self.heads else side.map(self.repeat_kv)

    def restore_axes(self, output: Tensor) -> Tensor:
        """Return a result (B, H, …) with as many axes as the caller's tensors had."""
        return output if self.axes == 4 else output[:, 0] if self.axes == 3 else output[0, 0]


class Prepared(NamedTuple):
    """A call and its tensors, checked: the arguments of reference.steps and of every implementation."""

    call: Call
    query: Tensor  # (B, H, Tq, Dq)
    key: LoweredSide  # features (B, G, Tk, D')
    value: Tensor  # (B, G, Tk, Dv)


def lower_key(score: Score, key: Tensor, heads: int, center: Tensor | None = None, start: int = 0) -> LoweredSide:
    """Return the lowered key side of a score, as a cache stores it: in float32 or wider if lowering rounds.

    Args:
        score: the score.
        key: (B, G, Tk, Dk).
        heads: H; a score with separate parameters for each head gets a key side per head.
        center: the center of the keys lowered earlier, if any.
        start: the number of keys lowered earlier.
    """
    if score.heads is not None and key.shape[1] != heads:
        key = key.repeat_interleave(heads // key.shape[1], 1)
    if not score.lowers_exactly and key.dtype in (torch.bfloat16, torch.float16):
        key = key.float()
    return score.lower_later_key(key, start, center) if start else score.lower_key(key, center)
