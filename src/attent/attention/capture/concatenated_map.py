"""The maps of one module over many calls, such as the steps of a decoder, as one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from attent.attention.maps import tiles as tile_stream
from attent.attention.maps.attention_map import AttentionMap, ScoreMap, Stage
from attent.errors import ArgumentError, ShapeError


class Joined(AttentionMap):
    """The rows of several maps below one another; a key that a call did not have yet weighs nothing in its rows.

    Args:
        maps: in the order of their calls.

    Raises:
        ShapeError: they are of different batches or heads.
    """

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        found = {(each.call.batch, each.call.heads, each.call.axes) for each in maps}
        if len(found) > 1:
            raise ShapeError(f"maps to be joined must have one batch and as many heads, got {', '.join(str(each.shape) for each in maps)}")
        longest = max(maps, key=lambda each: each.call.keys)
        call = replace(longest.call, queries=sum(each.call.queries for each in maps), mask=None, bias=None, start=0)
        super().__init__(call, torch.cat([each.query for each in maps], 2), longest.key, detached=True)
        self._maps = tuple(maps)

    def detach(self) -> AttentionMap:
        return self

    def keep(self) -> AttentionMap:
        return Joined([each.keep() for each in self._maps])

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        raise ArgumentError("joined maps have no scores; ask the map of one call")

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tile_stream.Tile]]:
        with torch.no_grad(), torch.autocast(self.call.device.type, enabled=False):
            yield self._below_one_another(range(self.call.queries) if rows is None else rows, heads, sequences)

    def _below_one_another(self, rows: range, heads: range | None, sequences: range | None) -> Iterator[tile_stream.Tile]:
        first = 0
        for each in self._maps:
            last = first + each.call.queries
            here = rows[bisect_left(rows, first) : bisect_left(rows, last)]
            for tile in tile_stream.tiles(each, range(here.start - first, here.stop - first, here.step), heads, sequences):
                yield replace(tile, rows=slice(tile.rows.start + first, tile.rows.stop + first, tile.rows.step))
            first = last

    def _of(self, runs: Iterable[Tensor]) -> list[Tensor]:
        return [self._at(rows) for rows in runs]

    def _at(self, rows: Tensor) -> Tensor:
        call, first = self.call, 0
        weights = torch.zeros(call.batch, call.heads, len(rows), call.keys, dtype=call.exact, device=call.device)
        for each in self._maps:
            here = (rows >= first) & (rows < first + each.call.queries)
            if here.any():
                weights[:, :, here, : each.call.keys] = each.rows(rows[here] - first)
            first += each.call.queries
        return weights
