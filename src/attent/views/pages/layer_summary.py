"""The numbers of one layer on a page, computed in one pass over its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.statistics import HeadStatistics, SpanPooler
from attent.views.scene import LayerGroup, LayerWeights

# Weights of all heads that are computed together.
CHUNK_WEIGHTS = 2**22
THUMBNAIL_SIDE = 48


@dataclass(frozen=True)
class LayerSummary:
    """The numbers of one layer.

    Args:
        dense: (H, Tq, Tk); None where it is pooled.
        pooled: the mean of each 2ⁿ x 2ⁿ block, (H, ⌈Tq / 2ⁿ⌉, ⌈Tk / 2ⁿ⌉) at level n; None where every weight is given.
        rows: indices and weights of the largest of each row, (H + 1, Tq, top) each; the last head is the mean over heads.
        columns: the same of each column, (H + 1, Tk, top).
        thumbnails: (H, h, w), the mean of each rectangle.
        statistics: the `HeadStatistics` of each head by name.
        has_nan: whether some weights are NaN.
    """

    dense: np.ndarray | None
    pooled: np.ndarray | None
    rows: tuple[np.ndarray, np.ndarray]
    columns: tuple[np.ndarray, np.ndarray]
    thumbnails: np.ndarray
    statistics: list[dict[str, float | None]]
    has_nan: bool


def summarize_layer(group: LayerGroup, layer: LayerWeights, *, level: int, top: int, is_full: bool) -> LayerSummary:
    """Compute the numbers of one layer of a group.

    Args:
        group: the group.
        layer: the layer.
        level: of the pooled map.
        top: how many of the largest weights of each row and column to return.
        is_full: whether to return every weight in the place of the pooled map.
    """
    heads, queries, keys = group.shape
    scale = max(max(queries, keys) / THUMBNAIL_SIDE, 1.0)
    height, width = max(round(queries / scale), 1), max(round(keys / scale), 1)
    query_index, key_index = torch.arange(queries), torch.arange(keys)
    thumbnails = SpanPooler((1, heads), query_index * height // queries, key_index * width // keys)
    pool = SpanPooler((1, heads), query_index >> level, key_index >> level)
    row_tops: list[Tensor] = [torch.zeros(heads + 1, queries, min(top, keys), dtype=dtype) for dtype in (torch.int64, torch.float32)]
    column_tops = _ColumnTops(heads + 1, keys, min(top, queries))
    statistics = HeadStatistics(heads, is_distribution=group.is_distribution, is_self_attention=group.is_self_attention)
    chunks: list[Tensor] = []
    has_nan = False
    for rows in query_index.split(max(CHUNK_WEIGHTS // (heads * keys), 1)):
        weights = layer.rows(rows)  # (H, rows, Tk)
        if has_nan := has_nan or bool(weights.isnan().any()):
            weights = weights.nan_to_num(0.0)
        # sums of many weights need more digits than the weights
        batch = weights[None].double()
        thumbnails.add(batch, rows)
        if is_full:
            chunks.append(weights)
        else:
            pool.add(batch, rows)
        if top:
            with_mean = torch.cat((weights, weights.mean(0, keepdim=True)))
            values, index = with_mean.topk(min(top, keys), -1)
            row_tops[0][:, rows], row_tops[1][:, rows] = index, values
            column_tops.add(with_mean, rows)
        # the last query stands at the last key
        statistics.add(weights, rows + keys - queries)
    return LayerSummary(
        dense=torch.cat(chunks, 1).numpy() if is_full else None,
        pooled=None if is_full else pool.mean()[0].numpy(),
        rows=(row_tops[0].numpy(), row_tops[1].numpy()),
        columns=(column_tops.index.mT.numpy(), column_tops.weights.mT.numpy()),
        thumbnails=thumbnails.mean()[0].numpy(),
        statistics=statistics.named(),
        has_nan=has_nan,
    )


class _ColumnTops:
    """The largest weights of each column and their rows, updated while rows arrive: `weights` and `index`, (H, top, Tk)."""

    def __init__(self, heads: int, keys: int, top: int) -> None:
        self._top = top
        self.index = torch.zeros(heads, 0, keys, dtype=torch.int64)
        self.weights = torch.zeros(heads, 0, keys)

    def add(self, weights: Tensor, rows: Tensor) -> None:
        values, index = weights.topk(min(self._top, weights.shape[1]), 1)
        values, index = torch.cat((self.weights, values), 1), torch.cat((self.index, rows[index]), 1)
        self.weights, order = values.topk(min(self._top, values.shape[1]), 1)
        self.index = index.gather(1, order)
