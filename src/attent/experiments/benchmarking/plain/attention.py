"""Attention as it is written without us: PyTorch's own function where it has the score, else the scores of all pairs at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Score, TanhScore
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot


def fused(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """PyTorch's fused function."""
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, scale=scale)


def textbook(query: Tensor, key: Tensor, value: Tensor, score: Score, *, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """The scores, then softmax, dropout and the mean of the values."""
    # what its definition multiplies and sums, tutorials write as one product
    scores = tanh_scores(query, key, score) if isinstance(score, TanhScore) else score(query, key)  # (B, H, T, T)
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    return F.dropout(torch.softmax(scores, -1), dropout) @ value


def tanh_scores(query: Tensor, key: Tensor, score: TanhScore) -> Tensor:
    """v·tanh(q' + k') with every sum of a query and a key at once, (B, H, Tq, Tk)."""
    ours, theirs = score.lower_query(query).features, score.lower_key(key).features
    hidden = torch.tanh(ours[..., :, None, :] + theirs[..., None, :, :])  # (B, H, Tq, Tk, hidden)
    return (hidden @ score.direction(hidden).mT)[..., 0]


def scale_of(score: Score, width: int) -> float | None:
    """The scale that PyTorch's fused function takes for this score; None where it does not have the score."""
    return score.scale(width) if isinstance(score, Dot | ScaledDot) else None
