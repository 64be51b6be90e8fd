"""Tanh scores and their gradients in plain PyTorch, a few rows at a time, on any device.

With e^2q' and e^2k' computed once per token, y = (1 + e^2(q' + k')) / 2 is one multiply-add for each feature of a pair
and tanh(q' + k') = 1 − 1 / y; docs/design.md explains why that is safe for |q'|, |k'| ≤ 20. Beyond that, tanh itself
is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attent.ops.autograd import checkpointed
from attent.ops.eligibility import is_known_true

# Features of pairs held at a time: 1 MiB of float32, which fits into one core's cache.
CHUNK = 2**18
# Up to this bound, products of exponentials stay far from overflow.
WIDE = 20.0


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Return v·tanh(q' + k') of queries (B, H, Tq, D), keys (B, H, Tk, D) and v (H|1, D): (B, H, Tq, Tk)."""
    result = query.new_empty(*query.shape[:-1], key.shape[-2])
    total = v.sum(-1)[:, None, None]
    for rows, rest in _rests(query, key):
        result[:, :, rows] = total - (rest @ v[0] if len(v) == 1 else (rest @ v[:, None, :, None])[..., 0])
    return result


def gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q', k' and v, in their shapes, given that of the scores (B, H, Tq, Tk)."""
    dq, dk, dv = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(v)
    for rows, rest in _rests(query, key):
        dscores = gradient[:, :, rows, None]  # (B, H, rows, 1, Tk)
        hidden = dscores.sum(-1) - (dscores @ rest)[..., 0, :]  # Σ g·tanh, (B, H, rows, D)
        dv += hidden.sum((0, 2)) if len(v) > 1 else hidden.sum((0, 1, 2))[None]
        # 1 − tanh² = r(2 − r) with r = 1 − tanh
        slope = (2 - rest).mul_(rest)
        dq[:, :, rows] = (dscores @ slope)[..., 0, :]
        for row in range(slope.shape[2]):
            dk.addcmul_(dscores[:, :, row, 0, :, None], slope[:, :, row])
    return dq * v[:, None], dk * v[:, None], dv


def _rests(query: Tensor, key: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of rows with their 1 − tanh(q' + k'), (B, H, rows, Tk, D).

    The buffer is reused: consume each result before requesting the next.
    """
    step = rows_at_once(key)
    narrow = query.numel() and key.numel()
    narrow = narrow and is_known_true(lambda: torch.maximum(query.abs().amax(), key.abs().amax()) <= WIDE, query.device)
    row_operand, key_operand = (
        (torch.exp(2 * query) / 2, torch.exp(2 * key)[:, :, None]) if narrow else (query, key[:, :, None])
    )
    half = query.new_full((), 0.5)
    buffer = query.new_empty(*query.shape[:2], min(step, query.shape[2]), *key.shape[2:])
    for first in range(0, query.shape[2], step):
        rows = slice(first, min(first + step, query.shape[2]))
        row, rest = row_operand[:, :, rows, None], buffer[:, :, : rows.stop - first]
        if narrow:
            yield rows, torch.addcmul(half, row, key_operand, out=rest).reciprocal_()
        else:
            yield rows, torch.add(row, key_operand, out=rest).tanh_().neg_().add_(1.0)


def plain_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Compute `tanh_scores` in plain PyTorch, a few rows at a time, recomputed for the gradients."""

    def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
        return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * v[:, None, None]).sum(-1)

    return torch.cat([checkpointed(scores, rows, key, v) for rows in query.split(rows_at_once(key), 2)], 2)


def rows_at_once(key: Tensor) -> int:
    """Return the number of rows to process at a time, given that every row is combined with all keys."""
    return max(CHUNK // max(key.numel(), 1), 1)
