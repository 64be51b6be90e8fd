"""Attention rollout through the layers of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from attent.attention.maps import tiles
from attent.attention.maps.attention_map import AttentionMap, ScoreMap, Stage
from attent.attention.normalizers.softmax import Softmax
from attent.errors import ArgumentError, ShapeError, refuse


def rollout(maps: Sequence[AttentionMap], rows: Sequence[int] | Tensor) -> Tensor:
    """Return the share of each input token in some tokens of the last layer.

        R = Ã_L ··· Ã₂ Ã₁,  Ã_l = ½ A_l + ½ I

    A_l is the mean over the heads of layer l, I the residual connection. Abnar and Zuidema 2020, "Quantifying Attention
    Flow in Transformers", §3 (arXiv:2005.00928). Computes only the given rows of R, from the last layer down, by tiles;
    queries that none of them reaches cost nothing. The result carries no gradient.

    Args:
        maps: one self-attention map per layer, first layer first, all of the same shape (B, H, T, T).
        rows: n tokens of the last layer.

    Returns:
        (B, n, T), or (n, T) for maps without a batch; each row sums to one.

    Raises:
        ArgumentError: there is no map, rows are out of range, or the weights are not a distribution.
        ShapeError: the maps are not square or differ in shape.
        StaleMapError: a tensor of a map has since been changed in place.
    """
    calls = [weights.call for weights in maps]
    refuse((not calls, "rollout needs the map of at least one layer"))
    call = calls[0]
    shapes = {(layer.batch, layer.queries, layer.keys, layer.axes) for layer in calls}
    if len(shapes) > 1 or call.queries != call.keys:
        raise ShapeError(
            "rollout needs self-attention maps (B, H, T, T) of one shape, got "
            f"{', '.join(str(weights.shape) for weights in maps)}"
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


class RolloutMap(AttentionMap):
    """`rollout` as a map, (B, 1, T, T), whose rows are computed when they are read.

    Args:
        maps: as for `rollout`.

    Raises:
        ArgumentError, ShapeError: as `rollout`.
    """

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        # a rollout of no rows, for its checks
        rollout(maps, [])
        last = maps[-1]
        call = replace(last.call, heads=1, normalizer=Softmax(), mask=None, bias=None, position=None, weighting=None)
        super().__init__(call, last.query, last.key, is_detached=True)
        self._maps = tuple(maps)

    def detach(self) -> AttentionMap:
        return self

    def keep(self) -> AttentionMap:
        return RolloutMap([weights.keep() for weights in self._maps])

    def norms(self) -> AttentionMap:
        raise ArgumentError("a rollout has no values whose norms could be taken; use the map of one layer")

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        raise ArgumentError("a rollout has no scores; use the map of one layer")

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tiles.Tile]]:
        rows = range(self.call.queries) if rows is None else rows
        batches = slice(0, self.call.batch) if sequences is None else slice(sequences.start, sequences.stop)
        yield self._tiles(rows, range(1) if heads is None else heads, batches)

    def _tiles(self, rows: range, heads: range, batches: slice) -> Iterator[tiles.Tile]:
        step = max(tiles.CPU_TILE // max(self.call.keys, 1), tiles.MIN_ROWS)
        for begin in range(0, len(rows) if heads else 0, step):
            run = rows[begin : begin + step]
            pairs = self.call.pairs(torch.tensor([*run], device=self.call.device))
            weights = self._compute_rows(pairs.query_index)[batches]
            yield tiles.Tile(
                batches, slice(0, 1), slice(run.start, run.stop, run.step), slice(None), pairs, weights, None, None
            )

    def _compute_rows(self, rows: Tensor) -> Tensor:
        """Return rows, (B, 1, len(rows), T)."""
        shares = rollout(self._maps, rows)
        return (shares if shares.dim() == 3 else shares[None])[:, None]


def _propagate_shares(weights: AttentionMap, shares: Tensor) -> Tensor:
    """Return shares · A of (B, n, T), A the mean over heads, computing only the rows of A with a share."""
    total = torch.zeros_like(shares)
    reached = shares.ne(0).any(1).any(0).nonzero()[:, 0]
    for rows in reached.split(tiles.rows_at_once(weights.call)):
        total += shares[:, :, rows] @ weights.rows(rows).mean(1)
    return total
