"""Five numbers that describe a head, each averaged over its queries."""

from __future__ import annotations

import torch
from torch import Tensor

HEAD_STATISTICS = ("entropy", "distance", "first", "previous", "same")
# Those that need the position of each query among the keys.
POSITIONAL = [HEAD_STATISTICS.index(name) for name in ("distance", "previous", "same")]


class HeadStatistics:
    """Means over queries, summed while the rows of a map arrive; a query that sees nothing counts in no mean.

    - entropy: −Σⱼ αᵢⱼ log αᵢⱼ, in nats;
    - distance: Σⱼ αᵢⱼ |p(i) − j|, in tokens, where query i stands at key p(i);
    - first, previous, same: the weight on key 0, on key p(i) − 1 and on key p(i).

    Args:
        heads: H.
        is_distribution: whether rows sum to one; otherwise no number has a meaning.
        is_self_attention: whether queries stand among the keys; otherwise distance, previous and same have no meaning.
    """

    def __init__(self, heads: int, *, is_distribution: bool, is_self_attention: bool) -> None:
        self.is_distribution, self.is_self_attention = is_distribution, is_self_attention
        self._sums, self._queries = torch.zeros(heads, len(HEAD_STATISTICS), dtype=torch.float64), torch.zeros(heads)

    def add(self, weights: Tensor, positions: Tensor) -> None:
        """Add some rows.

        Args:
            weights: (H, rows, Tk).
            positions: the key position of each row, (rows,).
        """
        if not self.is_distribution:
            return
        keys = weights.shape[-1]
        gaps = (positions[:, None] - torch.arange(keys)).abs().float()  # (rows, Tk)
        sums = [torch.special.entr(weights).sum((1, 2)), torch.einsum("hij,ij->h", weights, gaps), weights[..., 0].sum(-1)]
        for offset in (1, 0):
            index = positions - offset
            is_inside = (index >= 0) & (index < keys)
            picked = weights[:, is_inside].gather(2, index[is_inside].expand(len(weights), -1)[..., None])
            sums.append(picked.sum((1, 2)))
        self._sums += torch.stack(sums, 1).double()
        self._queries += (weights.sum(-1) > 0).sum(-1)

    def means(self) -> Tensor:
        """Return the means, (H, 5) in the order of HEAD_STATISTICS; NaN where a number has no meaning."""
        means = self._sums / self._queries.clamp(min=1)[:, None]
        if not self.is_distribution:
            return torch.full_like(means, torch.nan)
        if not self.is_self_attention:
            means[:, POSITIONAL] = torch.nan
        return means
