"""What a page holds of one layer, gathered in one walk over its rows: numbers or pooled maps, the largest, and figures of each head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.views.scene import LayerGroup, LayerWeights

# Numbers of all heads that are looked at together.
AT_ONCE = 2**22
THUMBNAIL = 48
FIGURES = ("entropy", "distance", "first", "previous", "same")


@dataclass(frozen=True)
class Gathered:
    """One layer.

    Args:
        whole: (H, Tq, Tk); None where it is pooled.
        pooled: the mean of each square of cells, (H, ⌈Tq / 2ⁿ⌉, ⌈Tk / 2ⁿ⌉) at level n; None where it is whole.
        rows: the places and the weights of the largest of each row, (H + 1, Tq, kept) each; the last is the mean over heads.
        columns: the same of each column, (H + 1, Tk, kept).
        thumbnails: (H, h, w), the mean of each rectangle.
        figures: the mean over rows of FIGURES, (H, 5); NaN where one has no meaning.
        nan: whether some weights are no numbers.
    """

    whole: np.ndarray | None
    pooled: np.ndarray | None
    rows: tuple[np.ndarray, np.ndarray]
    columns: tuple[np.ndarray, np.ndarray]
    thumbnails: np.ndarray
    figures: np.ndarray
    nan: bool


def gathered(group: LayerGroup, layer: LayerWeights, *, level: int, kept: int, whole: bool) -> Gathered:
    """One layer of a group; arguments as for `Gathered`."""
    heads, queries, keys = group.shape
    pooled, small = _squares(group, level), _thumbnail(group)
    top_rows = np.zeros((heads + 1, queries, min(kept, keys)), np.int64), np.zeros((heads + 1, queries, min(kept, keys)), np.float32)
    columns = _Columns(heads + 1, keys, min(kept, queries))
    figures, seen, nan = np.zeros((heads, len(FIGURES))), np.zeros(heads), False
    everything: list[Tensor] = []
    for first, weights in _walk(layer):
        if nan := nan or bool(weights.isnan().any()):
            weights = weights.nan_to_num(0.0)
        if whole:
            everything.append(weights)
        else:
            pooled.add(weights, first)
        small.add(weights, first)
        if kept:
            every = torch.cat((weights, weights.mean(0, keepdim=True)))
            found = every.topk(min(kept, keys), -1)
            rows = slice(first, first + weights.shape[1])
            top_rows[0][:, rows], top_rows[1][:, rows] = found.indices.numpy(), found.values.numpy()
            columns.add(every, first)
        if group.is_distribution:
            figures += _figures(group, weights, first)
            seen += (weights.sum(-1) > 0).sum(-1).numpy()
    figures = figures / np.maximum(seen, 1)[:, None] if group.is_distribution else np.full_like(figures, np.nan)
    if not group.is_self_attention:
        figures[:, [FIGURES.index(name) for name in ("distance", "previous", "same")]] = np.nan
    numbers = torch.cat(everything, 1).numpy() if whole else None
    squares = None if whole else pooled.mean
    return Gathered(numbers, squares, top_rows, (columns.places, columns.weights), small.mean, figures, nan)


def _walk(layer: LayerWeights) -> Iterator[tuple[int, Tensor]]:
    """Some rows of all heads at a time, (H, rows, Tk), and which is the first."""
    heads, queries, keys = layer.shape
    step = max(AT_ONCE // (heads * keys), 1)
    for first in range(0, queries, step):
        yield first, layer.rows(torch.arange(first, min(first + step, queries)))


class _Mean:
    """The mean over rectangles, summed as rows come.

    Args:
        heads: H.
        rows: which rectangle each query is in, (Tq,), in order.
        columns: the same of each key, (Tk,).
    """

    def __init__(self, heads: int, rows: np.ndarray, columns: np.ndarray) -> None:
        self._rows, self._starts = rows, np.unique(columns, return_index=True)[1]
        self._cells = np.bincount(rows)[:, None] * np.bincount(columns)
        self._total = np.zeros((heads, *self._cells.shape))

    def add(self, weights: Tensor, first: int) -> None:
        places, starts = np.unique(self._rows[first : first + weights.shape[1]], return_index=True)
        narrow = np.add.reduceat(weights.numpy(), self._starts, axis=2, dtype=np.float64)
        self._total[:, places] += np.add.reduceat(narrow, starts, axis=1)

    @property
    def mean(self) -> np.ndarray:
        return self._total / self._cells


def _squares(group: LayerGroup, level: int) -> _Mean:
    heads, queries, keys = group.shape
    return _Mean(heads, np.arange(queries) >> level, np.arange(keys) >> level)


def _thumbnail(group: LayerGroup) -> _Mean:
    heads, queries, keys = group.shape
    scale = max(max(queries, keys) / THUMBNAIL, 1.0)
    height, width = max(round(queries / scale), 1), max(round(keys / scale), 1)
    return _Mean(heads, np.arange(queries) * height // queries, np.arange(keys) * width // keys)


class _Columns:
    """The largest weights of each column and the rows they stand in, as rows come."""

    def __init__(self, heads: int, keys: int, kept: int) -> None:
        self._kept = kept
        self._places = torch.zeros(heads, 0, keys, dtype=torch.int64)
        self._weights = torch.zeros(heads, 0, keys)

    def add(self, weights: Tensor, first: int) -> None:
        found = weights.topk(min(self._kept, weights.shape[1]), 1)
        values = torch.cat((self._weights, found.values), 1)
        places = torch.cat((self._places, found.indices + first), 1)
        best = values.topk(min(self._kept, values.shape[1]), 1)
        self._weights, self._places = best.values, places.gather(1, best.indices)

    @property
    def places(self) -> np.ndarray:
        return self._places.transpose(1, 2).numpy()

    @property
    def weights(self) -> np.ndarray:
        return self._weights.transpose(1, 2).numpy()


def _figures(group: LayerGroup, weights: Tensor, first: int) -> np.ndarray:
    """The sums over some rows of each figure, (H, 5)."""
    _, queries, keys = group.shape
    # where each query stands among the keys: the last at the last
    stand = torch.arange(first, first + weights.shape[1]) + keys - queries
    far = (stand[:, None] - torch.arange(keys)).abs().float()  # (rows, Tk)
    entropy = torch.special.entr(weights).sum((1, 2))
    distance = torch.einsum("hij,ij->h", weights, far)
    shares = [weights[..., 0].sum(-1)]
    for back in (1, 0):
        there = stand - back
        inside = (there >= 0) & (there < keys)
        shares.append(weights[:, inside].gather(2, there[inside].expand(len(weights), -1)[..., None]).sum((1, 2)))
    return torch.stack((entropy, distance, *shares), 1).double().numpy()
