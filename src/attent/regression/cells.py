"""Points in small cells of space, and which cells can matter to the queries of another.

Weights that are less than rounding are not computed: of a cell's box and a run of queries' box follow the largest weight that
any pair of them can have, and the least. Cells whose largest together are too little to be seen beside the least of all others
are passed by. Gray and Moore 2001, "N-Body Problems in Statistical Learning".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.regression.kernels import Kernel


class Cells(NamedTuple):
    """Points by cell: those of cell c are order[starts[c] : starts[c + 1]], and lie within its box."""

    order: Tensor  # (n,) the points' indices
    starts: Tensor  # (cells + 1,)
    low: Tensor  # (cells, D) the box of each
    high: Tensor  # (cells, D)

    def members(self, chosen: Tensor) -> Tensor:
        """Where in `order` the points of the chosen cells, (cells,) boolean, stand, in ascending order."""
        return torch.repeat_interleave(chosen, self.starts.diff()).nonzero()[:, 0]


def cells(points: Tensor, most: int, *, widest: float = math.inf, least: int = 1, limit: float = math.inf) -> Cells:
    """Halve the points where they reach widest, until their cells are small (the leaves of Bentley 1975's k-d tree).

    Args:
        points: (n, D), n ≥ 1, in bandwidths, so that all features are of one scale.
        most: how many points a cell may have, ≥ 1.
        widest: how wide it may be, unless it has fewer than twice the `least`.
        least: how many points make it small enough, if it is not wider than the limit.
        limit: how wide it may be, however few points it has.
    """
    numbers = points.detach().cpu().numpy()
    waiting, found = [np.arange(len(numbers))], list[np.ndarray]()
    while waiting:
        part = waiting.pop()
        width = np.ptp(numbers[part], 0)
        if len(part) <= most and width.max() <= (limit if len(part) < 2 * least else widest):
            found.append(part)
            continue
        axis = int(width.argmax())
        half = len(part) // 2
        part = part[np.argpartition(numbers[part, axis], half)]
        waiting += [part[half:], part[:half]]
    low = np.stack([numbers[part].min(0) for part in found])
    high = np.stack([numbers[part].max(0) for part in found])
    starts = np.cumsum([0, *map(len, found)])
    return Cells(*map(torch.from_numpy, (np.concatenate(found), starts, low, high)))


def near(kernel: Kernel, low: Tensor, high: Tensor, keys: Cells, precision: float) -> Tensor:
    """Where in `keys.order` the keys stand that some query within a box may have to look at, in ascending order.

    Args:
        kernel: what falls with the distance.
        low: (D,) of the queries' box.
        high: (D,) of the queries' box.
        keys: in cells.
        precision: the share of its weights that a query may miss.
    """
    # feature by feature, how far any query of the box is from any key of the cell: at least, and at most
    gap = torch.maximum(keys.low - high, low - keys.high).clamp(min=0.0)  # (cells, D)
    far = torch.maximum(keys.high - low, high - keys.low)
    counts = keys.starts.diff().to(gap.dtype)
    largest, least = kernel.exponent(gap), kernel.exponent(far)
    # a key of each cell may be the one that a query is not to look at
    certain = torch.logsumexp(least + (counts - 1.0).log(), 0)
    if certain == -torch.inf:
        return keys.members(largest > -torch.inf)
    # the cells that matter least, as many as together are less than that share of what any query sees for certain
    shares = counts * (largest - certain).exp()
    order = shares.argsort()
    chosen = torch.ones_like(shares, dtype=torch.bool)
    chosen[order[shares[order].cumsum(0) <= precision]] = False
    return keys.members(chosen)
