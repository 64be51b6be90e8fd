"""What a view asks of a layer beside tiles: how one query looks, who looks at one key, a small picture, and a few figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attent.serve.pooling import Pooled, runs
from attent.serve.tiles import AT_ONCE, Part, Sheet, stride
from attent.views.scene import Layer

THUMBNAIL = 48
# Weights that are computed for one thumbnail, of which a grid has hundreds, and for the figures of a layer.
SMALL, FIGURED = 2**20, 2**23
FIGURES = ("entropy", "distance", "first", "previous", "same")


def row(sheet: Sheet, query: int) -> Part:
    """How one query looks, (1, Tk)."""
    found = torch.zeros(1, sheet.shape[1])
    for _, weights, start in sheet.told(range(query, query + 1)):
        found[:, start : start + weights.shape[1]] = weights
    return Part(found, note=_heads(sheet))


def column(sheet: Sheet, key: int) -> Part:
    """Who looks at one key, (1, Tq): of a long text some queries, the others NaN."""
    length = sheet.shape[0]
    every = stride(sheet.cells(length), AT_ONCE, length)
    asked = range(every // 2, length, every)
    found = torch.full((1, length), torch.nan)
    found[:, asked.start :: every] = 0.0
    for some, weights, start in sheet.told(asked):
        if start <= key < start + weights.shape[1]:
            found[0, some.start : some.stop : every] = weights[:, key - start]
    note = ", ".join(filter(None, (_heads(sheet), f"1 row in {every:,} was computed" if every > 1 else "")))
    return Part(found, every == 1, note)


def thumbnail(sheet: Sheet) -> Part:
    """All of it, at most 48 x 48."""
    level = max(-(-max(sheet.shape) // THUMBNAIL) - 1, 0).bit_length()
    rows = range(sheet.shape[0])
    every = stride(sheet.cells(len(rows)), SMALL, len(rows))
    pooled = Pooled(0, runs(len(rows), level), range(sheet.shape[1]), level, ("mean",))
    for some, weights, start in sheet.told(rows[every // 2 :: every]):
        pooled.add(some, weights, start)
    return Part(pooled.take("mean"), every == 1, f"from 1 row in {every:,}" if every > 1 else "")


@dataclass(frozen=True)
class Figures:
    """What is told of the heads of a layer.

    Args:
        heads: of each head the means over queries of what FIGURES names; None where one has no meaning.
        every: of how many queries one was computed; 1 where all were.
    """

    heads: list[dict[str, float | None]]
    every: int = 1


def figures(layer: Layer, *, itself: bool) -> Figures:
    """Of each head the means over queries of what FIGURES names; None where one has no meaning.

    The entropy of a row in nats; how far it looks away from where it stands, in tokens; and its weight on the first place, on the one
    before where it stands and on the one where it stands. Of a long text some rows speak for all.

    Args:
        layer: the weights.
        itself: whether the text looks at itself, so that a query stands somewhere among the keys.
    """
    heads, queries, keys = layer.shape
    if not layer.distribution:
        return Figures([dict.fromkeys(FIGURES) for _ in range(heads)])
    every = stride(heads * queries * keys, FIGURED, queries)
    rows = torch.arange(every // 2, queries, every)
    sums, seen = torch.zeros(heads, len(FIGURES), dtype=torch.float64), torch.zeros(heads)
    for some in rows.split(max(FIGURED // 8 // (heads * keys), 1)):
        weights = layer.rows(some)
        sums += _sums(weights, some + keys - queries)
        seen += (weights.sum(-1) > 0).sum(-1)
    means = (sums / seen.clamp(min=1)[:, None]).tolist()
    places = () if itself else ("distance", "previous", "same")
    # NaN is no JSON
    told = [
        {name: None if name in places or math.isnan(value) else value for name, value in zip(FIGURES, head, strict=True)} for head in means
    ]
    return Figures(told, every)


def _sums(weights: Tensor, stand: Tensor) -> Tensor:
    """The sums over rows of each figure, (H, 5), of weights (H, rows, Tk) of queries that stand at these places."""
    keys = weights.shape[-1]
    far = (stand[:, None] - torch.arange(keys)).abs().float()
    shares = [weights[..., 0].sum(-1)]
    for back in (1, 0):
        there = stand - back
        inside = (there >= 0) & (there < keys)
        shares.append(weights[:, inside].gather(2, there[inside].expand(len(weights), -1)[..., None]).sum((1, 2)))
    entropy, distance = torch.special.entr(weights).sum((1, 2)), torch.einsum("hij,ij->h", weights, far)
    return torch.stack((entropy, distance, *shares), 1).double()


def _heads(sheet: Sheet) -> str:
    return f"mean over {len(sheet.heads)} heads" if len(sheet.heads) > 1 else ""
