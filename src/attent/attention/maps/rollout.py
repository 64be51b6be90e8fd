"""Attention rolled out through the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attent.attention.maps import tiles
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError


def rollout(maps: Sequence[AttentionMap], rows: Sequence[int] | Tensor) -> Tensor:
    """How much of each input token arrives at some tokens of the last layer.

        R = Ã_L ··· Ã₂ Ã₁,  Ã_l = ½ A_l + ½ I

    A_l is the mean over the heads of layer l, I the residual connection. Abnar and Zuidema 2020, "Quantifying Attention Flow
    in Transformers", §3 (arXiv:2005.00928). Only the given rows of R are computed, from the last layer down, the maps by tiles;
    queries of a layer that none of them reaches cost nothing. It carries no gradient.

    Args:
        maps: a self-attention map of each layer, the first layer first, all of one shape (B, H, T, T).
        rows: which tokens of the last layer, n whole numbers.

    Returns:
        (B, n, T), or (n, T) of maps without a batch; each row sums to one.

    Raises:
        ArgumentError: no map, rows out of range, or weights that are no distribution.
        ShapeError: maps that are not square, or not of one shape.
        StaleMapError: a tensor that a map was made of was changed in place since.
    """
    calls = [weights.call for weights in maps]
    if not calls:
        raise ArgumentError("rollout needs the map of one layer at least")
    shapes = {(call.batch, call.queries, call.keys, call.axes) for call in calls}
    if len(shapes) > 1 or calls[0].queries != calls[0].keys:
        raise ShapeError(f"rollout needs self-attention maps (B, H, T, T) of one shape, got {', '.join(str(one.shape) for one in maps)}")
    for weights in maps:
        if not weights.distribution:
            raise ArgumentError(f"rollout is that of distributions, which {weights.kind} weights are not")
    length = calls[0].queries
    chosen = torch.as_tensor(rows, device=calls[0].device).reshape(-1).long()
    if any(not 0 <= row < length for row in chosen.tolist()):
        raise ArgumentError(f"rows must be from 0 to {length - 1}, got {chosen.tolist()}")
    with torch.no_grad():
        reached = torch.zeros(calls[0].batch, len(chosen), length, dtype=calls[0].exact, device=chosen.device)
        reached[:, torch.arange(len(chosen)), chosen] = 1.0
        for weights in reversed(maps):
            reached = 0.5 * (reached + _through(weights, reached))
    return reached if calls[0].axes > 2 else reached[0]


def _through(weights: AttentionMap, reached: Tensor) -> Tensor:
    """reached · A of (B, n, T), A the mean over heads, from the rows of A that are reached alone."""
    total = torch.zeros_like(reached)
    asked = reached.ne(0).any(1).any(0).nonzero()[:, 0]
    for rows in asked.split(tiles.rows_at_once(weights.call)):
        total += reached[:, :, rows] @ weights.rows(rows).mean(1)
    return total
