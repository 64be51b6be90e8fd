"""Kernel regression by attention for runs of neighboring queries: m(q) = Σᵢ K((q − xᵢ)/h) yᵢ / Σᵢ K((q − xᵢ)/h).

Keys are grouped into small boxes of space. The box of a run of queries and a box of keys bound the weight of every pair
between them; boxes of keys whose weights cannot exceed the rounding error are skipped. Gray and Moore 2001, "N-Body
Problems in Statistical Learning". Gaussians of one feature are summed by their series instead, in `FastGaussTransform`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.masks.excluded import Excluded
from attent.nonparametric.kernels import KERNELS, Kernel

# The maximum number of queries in a run, which share their keys; the maximum width of a run in bandwidths; half the
# number of queries below which a run can be wider; and the maximum number of keys in a box. Distant queries share few
# of the keys that matter to them, and their smallest weights are too small to be computed quickly.
QUERIES, MAX_WIDTH, MIN_QUERIES, KEYS = 128, 4.0, 32, 64
# A score loses digits with the square of a query's distance from the middle of its run: runs wider than FLOAT64_WIDTH
# are computed in float64, and no run is wider than WIDTH_LIMIT.
FLOAT64_WIDTH, WIDTH_LIMIT = 12.0, 500.0
# The number of pairs computed together, which fit a core's cache, and the minimum number of rows per product.
PAIRS, ROWS = 2**19, 8
# Up to this many pairs are computed together in float64, whose precision suffices within WIDTH_LIMIT.
SMALL = 2**18
# The share of its weights that a query can lose, in units of the rounding error.
MISSED = 1 / 16
# For the Gauss transform: half the width of a box and the range of a query, in bandwidths; and the number of terms of
# the series, whose first omitted term is RANGE·RADIUS^n/n! = 8e-19.
RADIUS, RANGE, TERMS = 0.25, 12.0, 30
# The number of queries that the Gauss transform processes together; their gathered sums fit a core's cache.
TRANSFORM_QUERIES = 2048


class KernelEstimate(NamedTuple):
    """The estimates of the regression at queries."""

    mean: Tensor  # (m, outputs)
    has_keys: Tensor  # (m,) True where any key has a weight


class Smoother:
    """Kernel regression on keys and values; skips keys whose weights would be lost to rounding.

    Args:
        key: (n, D), n ≥ 1, in bandwidths, in float64.
        value: (n, outputs), in the type of the computation.
        kernel: the kernel.
        weight: (n,) > 0, in float64, multiplies the kernel weight of each key; 1 if not given.
    """

    def __init__(self, key: Tensor, value: Tensor, kernel: Kernel, weight: Tensor | None = None) -> None:
        self.kernel = kernel
        self.boxes = split_boxes(key, KEYS)
        # neighbors are adjacent in memory
        self._key, self._value = key[self.boxes.order], value[self.boxes.order]
        self._weight = None if weight is None else weight[self.boxes.order]

    def __call__(self, query: Tensor) -> KernelEstimate:
        """Return the estimates at queries (m, D), in bandwidths, in float64."""
        mean = self._value.new_zeros(len(query), self._value.shape[1])
        has_keys = torch.zeros(len(query), dtype=torch.bool)
        if self._can_transform(query):
            sums, is_near = self._transform(query[:, 0])
            mean[is_near], has_keys[is_near] = (sums[is_near, :-1] / sums[is_near, -1:]).to(mean.dtype), True
        rest = (~has_keys).nonzero()[:, 0]
        for run, key_index in self.runs(query[rest]):
            rows, key, value = rest[run], self._key.index_select(0, key_index), self._value.index_select(0, key_index)
            weight = None if self._weight is None else self._weight[key_index]
            is_wide = _width(query[rows]) > FLOAT64_WIDTH
            estimate = smooth(self.kernel, query[rows], key, value.double() if is_wide else value, weight=weight)
            mean[rows], has_keys[rows] = estimate.mean.to(mean.dtype), estimate.has_keys
        return KernelEstimate(mean, has_keys)

    @cached_property
    def _transform(self) -> FastGaussTransform:
        value = self._value.double()
        # an extra value of 1, whose sums are the denominators
        value = torch.cat((value, torch.ones_like(value[:, :1])), 1)
        if self._weight is None:
            return FastGaussTransform(self._key[:, 0], value)
        return FastGaussTransform(
            self._key[:, 0], value * self._weight[:, None], float(self._weight.max() / self._weight.min())
        )

    def _can_transform(self, query: Tensor) -> bool:
        """Return whether the Gauss transform can compute the estimates at these queries, and is faster."""
        is_gaussian = self.kernel is KERNELS["gaussian"] and self._key.shape[1] == 1
        return is_gaussian and len(query) * len(self._key) > SMALL and self._transform.is_faster

    def runs(self, query: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Split queries (m, D) into runs of neighbors.

        Yields the indices of each run's queries, and the positions in `boxes.order` of the keys that matter to them.
        """
        if not len(query):
            return
        if self._value.dtype == torch.float64 and len(query) * len(self._key) <= SMALL and _width(query) <= WIDTH_LIMIT:
            yield torch.arange(len(query)), torch.arange(len(self._key))
            return
        boxes = split_boxes(query, QUERIES, max_width=MAX_WIDTH, min_points=MIN_QUERIES, width_limit=WIDTH_LIMIT)
        precision = MISSED * torch.finfo(self._value.dtype).eps
        weights = BoxWeights.of(self.boxes, self._weight)
        for run, low, high in zip(boxes.order.split(boxes.offsets.diff().tolist()), boxes.low, boxes.high, strict=True):
            yield run, near_keys(self.kernel, low, high, self.boxes, precision, weights)


def smooth(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    left_out: Tensor | None = None,
    weight: Tensor | None = None,
) -> KernelEstimate:
    """Return the estimates at a run of neighboring queries.

    Args:
        kernel: the kernel.
        query: (m, D), in bandwidths, in float64.
        key: (n, D), likewise.
        value: (n, outputs), in the type of the computation.
        left_out: (m,) the index of the key that each query ignores, negative for none.
        weight: (n,) the weight of each key, > 0, in float64.
    """
    # relative to the middle of the queries, distances keep their digits in any type
    center = query.detach().mean(0)
    query, key, score, mask = kernel.fast_parts(*((points - center).to(value.dtype) for points in (query, key)))
    if left_out is not None:
        excluded = Excluded(left_out[:, None])
        mask = excluded if mask is None else mask & excluded
    # an extra value of 1 shows whether there are any weights; in column order, products with a few columns are several
    # times as fast, with smaller rounding errors
    value = torch.cat((value.mT, value.new_ones(1, len(value)))).mT
    step = max(PAIRS // max(len(key), 1), ROWS) if mask is None else max(len(query), 1)
    # K(u) w = exp(log K(u) + log w)
    bias = None if weight is None else weight.log().to(value.dtype)[None, None, None]
    context = torch.cat(
        [
            attend(rows, key, value, score=score, mask=mask, bias=bias, implementation="tiled")
            for rows in query.split(step)
        ]
    )
    weights = context[:, -1:]
    # the weights sum to 1 except for rounding, which mostly cancels with that of the mean
    return KernelEstimate(context[:, :-1] / weights.clamp(min=0.5), weights[:, 0].detach() > 0.5)


def _width(points: Tensor) -> float:
    return float((points.amax(0) - points.amin(0)).amax())


class Boxes(NamedTuple):
    """Points in boxes: box c holds the points order[offsets[c] : offsets[c + 1]]."""

    order: Tensor  # (n,) indices of the points
    offsets: Tensor  # (boxes + 1,)
    low: Tensor  # (boxes, D) the lower corner of each box
    high: Tensor  # (boxes, D) the upper corner of each box

    def members(self, chosen: Tensor) -> Tensor:
        """Return the positions in `order` of the points of the chosen boxes, (boxes,) boolean, ascending."""
        return torch.repeat_interleave(chosen, self.offsets.diff()).nonzero()[:, 0]


def split_boxes(
    points: Tensor, max_points: int, *, max_width: float = math.inf, min_points: int = 1, width_limit: float = math.inf
) -> Boxes:
    """Halve the points along their widest axis until the boxes are small: the leaves of Bentley's k-d tree (1975).

    Args:
        points: (n, D), n ≥ 1, in bandwidths, so that all features have the same scale.
        max_points: the maximum number of points in a box, ≥ 1.
        max_width: the maximum width of a box with at least twice `min_points` points.
        min_points: the minimum number of points in each half of a box that is split because of `max_width`.
        width_limit: the maximum width of any box.
    """
    numbers = points.detach().cpu().numpy()
    stack, boxes = [np.arange(len(numbers))], list[np.ndarray]()
    while stack:
        box = stack.pop()
        width = np.ptp(numbers[box], 0)
        if len(box) <= max_points and width.max() <= (width_limit if len(box) < 2 * min_points else max_width):
            boxes.append(box)
            continue
        half = len(box) // 2
        box = box[np.argpartition(numbers[box, int(width.argmax())], half)]
        stack += [box[half:], box[:half]]
    low, high = np.stack([numbers[box].min(0) for box in boxes]), np.stack([numbers[box].max(0) for box in boxes])
    return Boxes(*map(torch.from_numpy, (np.concatenate(boxes), np.cumsum([0, *map(len, boxes)]), low, high)))


class BoxWeights(NamedTuple):
    """The summed key weights of each box; key weights multiply those of the kernel."""

    total: Tensor  # (boxes,)
    rest: Tensor  # (boxes,) without the heaviest key

    @classmethod
    def of(cls, boxes: Boxes, weight: Tensor | None) -> BoxWeights:
        """Sum the key weights (n,), given in the order of the boxes, by box; each is 1 if not given."""
        counts = boxes.offsets.diff()
        if weight is None:
            return cls(counts.to(boxes.low.dtype), (counts - 1).to(boxes.low.dtype))
        total, heaviest = (torch.segment_reduce(weight, reduce, lengths=counts) for reduce in ("sum", "max"))
        return cls(total, torch.where(counts > 1, total - heaviest, 0.0).clamp(min=0.0))


def near_keys(
    kernel: Kernel, low: Tensor, high: Tensor, keys: Boxes, precision: float, weights: BoxWeights | None = None
) -> Tensor:
    """Return the positions in `keys.order` of the keys that matter to any query within a box, ascending.

    Args:
        kernel: the kernel, which decreases with the distance.
        low: (D,) the lower corner of the queries' box.
        high: (D,) the upper corner.
        keys: the keys, in boxes.
        precision: the share of its weights that a query can lose.
        weights: the key weights of the boxes; 1 per key if not given.
    """
    weights = weights or BoxWeights.of(keys, None)
    # feature by feature, the smallest and the largest distance between a query and a key of the two boxes
    nearest = torch.maximum(keys.low - high, low - keys.high).clamp(min=0.0)  # (boxes, D)
    furthest = torch.maximum(keys.high - low, high - keys.low)
    upper, lower = kernel.exponent(nearest), kernel.exponent(furthest)
    # the query can ignore one key of each box
    certain = torch.logsumexp(lower + weights.rest.log(), 0)
    if certain == -torch.inf:
        return keys.members(upper > -torch.inf)
    # skip the boxes with the smallest weights, as long as together they stay below that share of the weight that every
    # query is certain to have
    shares = weights.total * (upper - certain).exp()
    order = shares.argsort()
    chosen = torch.ones_like(shares, dtype=torch.bool)
    chosen[order[shares[order].cumsum(0) <= precision]] = False
    return keys.members(chosen)


class FastGaussTransform:
    """Computes sums of Gaussians of one feature from their series about the centers of small boxes.

    A query visits boxes instead of keys. Greengard and Strain 1991, "The Fast Gauss Transform", SIAM J. Sci. Stat.
    Comput. 12(1). For a key x = c + d in a box about c and a query q = c + u, both in bandwidths,

        exp(−(q − x)²/2) = exp(−u²/2) · Σₙ uⁿ · dⁿ exp(−d²/2) / n!,

    so that a box needs only the sums over its keys of y · dⁿ exp(−d²/2) / n!. This is a Taylor series; the paper's
    Hermite polynomials are not needed for boxes as small as these.

    Args:
        key: (n,), n ≥ 1, in bandwidths, in float64.
        value: (n, outputs), in float64.
        ratio: the ratio of the largest weight in `value` to the smallest.

    Attributes:
        is_faster: True if keys share boxes, so that visiting boxes takes less time than visiting keys, and no more
            memory. If False, do not call the transform.
    """

    def __init__(self, key: Tensor, value: Tensor, ratio: float = 1.0) -> None:
        self._start = key.min()
        # the boxes that hold a key, ascending, and the index among these of each key's box
        self._boxes, box_index = torch.unique(self._box_numbers(key), return_inverse=True)
        self.is_faster = TERMS * len(self._boxes) <= len(key)
        if not self.is_faster:
            return
        offset = key - self._centers(self._boxes)[box_index]  # (n,)
        term, self._sums = torch.exp(-0.5 * offset.square()), key.new_zeros(TERMS, len(self._boxes), value.shape[1])
        for n in range(TERMS):
            self._sums[n].index_add_(0, box_index, value * term[:, None])
            term = term * offset / (n + 1)
        # within this distance of the nearest key, its weight is far larger than all weights beyond the range
        margin = 2.0 * math.log(16.0 * ratio * len(key) / torch.finfo(torch.float64).eps)
        self._near = math.sqrt(max((RANGE - 2.0 * RADIUS) ** 2 - margin, 0.0)) - 2.0 * RADIUS

    def __call__(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums Σᵢ exp(−(q − xᵢ)²/2) yᵢ, (m, outputs), at queries (m,).

        Also return where the sums are exact, (m,): near a key.
        """
        sums, is_near = zip(*map(self._sums_at, query.split(TRANSFORM_QUERIES)), strict=True)
        return torch.cat(sums), torch.cat(is_near)

    def _sums_at(self, query: Tensor) -> tuple[Tensor, Tensor]:
        sums = self._sums.new_zeros(len(query), self._sums.shape[2])
        nearest = torch.full_like(query, math.inf)
        home, reach = self._box_numbers(query), math.ceil(RANGE / (2.0 * RADIUS))
        for neighbor in range(-reach, reach + 1):
            box = torch.searchsorted(self._boxes, home + neighbor).clamp(max=len(self._boxes) - 1)
            rows = (self._boxes[box] == home + neighbor).nonzero()[:, 0]
            if not len(rows):
                continue
            box, u = box[rows], query[rows] - self._centers(home[rows] + neighbor)
            nearest[rows] = torch.minimum(nearest[rows], u.abs())
            total = self._sums[-1, box]  # (rows, outputs)
            for n in range(TERMS - 2, -1, -1):
                total = torch.addcmul(self._sums[n, box], total, u[:, None])
            sums.index_add_(0, rows, torch.exp(-0.5 * u.square())[:, None] * total)
        return sums, nearest <= self._near

    def _box_numbers(self, points: Tensor) -> Tensor:
        # clamped, so that the box numbers of distant points fit int64
        return ((points - self._start) / (2.0 * RADIUS)).floor().clamp(-1e15, 1e15).long()

    def _centers(self, numbers: Tensor) -> Tensor:
        return self._start + (numbers.to(self._start.dtype) + 0.5) * (2.0 * RADIUS)
