"""Attention rollout through the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attent.attention.maps import tiles
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError


def rollout(maps: Sequence[AttentionMap], rows: Sequence[int] | Tensor) -> Tensor:
    """Return the share of each input token in some tokens of the last layer.

        R = Ã_L ··· Ã₂ Ã₁,  Ã_l = ½ A_l + ½ I

    A_l is the mean over the heads of layer l, I the residual connection. Abnar and Zuidema 2020, "Quantifying Attention Flow
    in Transformers", §3 (arXiv:2005.00928). Computes only the given rows of R, from the last layer down, by tiles; queries that
    none of them reaches cost nothing. The result carries no gradient.

    Args:
        maps: a self-attention map of each layer, the first layer first, all of one shape (B, H, T, T).
        rows: n tokens of the last layer.

    Returns:
        (B, n, T), or (n, T) for maps without a batch; each row sums to one.

    Raises:
        ArgumentError: no map, rows out of range, or weights that are no distribution.
        ShapeError: maps that are not square, or not of one shape.
        StaleMapError: a tensor of a map was changed in place since.
    """
    calls = [weights.call for weights in maps]
    if not calls:
        raise ArgumentError("rollout needs the map of one layer at least")
    call = calls[0]
    shapes = {(layer.batch, layer.queries, layer.keys, layer.axes) for layer in calls}
    if len(shapes) > 1 or call.queries != call.keys:
        raise ShapeError(
            f"rollout needs self-attention maps (B, H, T, T) of one shape, got {', '.join(str(weights.shape) for weights in maps)}"
        )
    for weights in maps:
        weights.check_distribution("rollout")
    selected = torch.as_tensor(rows, device=call.device).reshape(-1).long()
    if any(not 0 <= row < call.queries for row in selected.tolist()):
        raise ArgumentError(f"rows must be from 0 to {call.queries - 1}, got {selected.tolist()}")
    with torch.no_grad():
        shares = torch.zeros(call.batch, len(selected), call.queries, dtype=call.accumulation_dtype, device=call.device)
        shares[:, torch.arange(len(selected)), selected] = 1.0
        for weights in reversed(maps):
            shares = 0.5 * (shares + _propagate_shares(weights, shares))
    return shares if call.axes > 2 else shares[0]


def _propagate_shares(weights: AttentionMap, shares: Tensor) -> Tensor:
    """Return shares · A of (B, n, T), A the mean over heads, computing only the rows of A with a share."""
    total = torch.zeros_like(shares)
    reached = shares.ne(0).any(1).any(0).nonzero()[:, 0]
    for rows in reached.split(tiles.rows_at_once(weights.call)):
        total += shares[:, :, rows] @ weights.rows(rows).mean(1)
    return total
