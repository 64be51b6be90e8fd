"""One query for each sequence, whose keys and values are found by an index: a step of a search moves numbers, not tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def looks(query: Tensor, memory: Tensor, rows: Tensor, counts: Tensor, groups: int, scale: float) -> Tensor:
    """The contexts of dot products under softmax, (B, H, D).

    Args:
        query: (B, H, D).
        memory: keys and values beside each other, (T, S, 2·G·D).
        rows: which of the S rows holds each key of each query, (B, T), or (B, 1) where one holds all.
        counts: how many keys each query sees, at least 1, (B,).
        groups: G, a divisor of H.
        scale: the factor on q·k.
    """
    batch, heads, width = query.shape
    columns = torch.arange(len(memory), device=query.device)
    here = memory[columns, rows].unflatten(-1, (2, groups, width)).permute(2, 0, 3, 1, 4)  # (2, B, G, T, D)
    scores = scale * query.view(batch, groups, -1, width) @ here[0].mT  # (B, G, H/G, T)
    scores = scores.masked_fill((columns >= counts[:, None])[:, None, None], -torch.inf)
    return (scores.softmax(-1) @ here[1]).view(batch, heads, width)


def keep(projected: Tensor, heads: int, groups: int, to: Tensor, angles: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Put keys and values where they stay, and turn them and the queries before, in place.

    Args:
        projected: each sequence's queries, keys and values, (B, (H + 2·G)·D).
        heads: H.
        groups: G.
        to: where keys and values stay, (B, 2·G·D).
        angles: cosine and sine, (D/2,) each, of what turns each pair of features, D/2 apart; None where nothing is turned.

    Returns:
        The queries, (B, H, D).
    """
    width = projected.shape[1] // (heads + 2 * groups)
    behind = heads * width
    if angles is not None:
        one, other = projected[:, : behind + groups * width].unflatten(-1, (-1, 2, width // 2)).unbind(2)  # (B, H + G, D/2)
        cosine, sine = angles
        first, second = one * cosine - other * sine, one * sine + other * cosine
        one.copy_(first)
        other.copy_(second)
    to.copy_(projected[:, behind:])
    return projected[:, :behind].unflatten(-1, (heads, width))
