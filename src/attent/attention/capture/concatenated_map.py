"""The maps of one module over several calls, such as the steps of a decoder, as one map."""

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


class ConcatenatedMap(AttentionMap):
    """The rows of several maps, one map after the other; keys that a call did not have yet weigh nothing in its rows.

    Args:
        maps: in the order of their calls.

    Raises:
        ShapeError: they differ in batch or heads.
    """

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        if len({(part.call.batch, part.call.heads, part.call.axes) for part in maps}) > 1:
            shapes = ", ".join(str(part.shape) for part in maps)
            raise ShapeError(f"maps can be concatenated if they have the same batch and heads, got {shapes}")
        longest = max(maps, key=lambda part: part.call.keys)
        call = replace(longest.call, queries=sum(part.call.queries for part in maps), mask=None, bias=None, start=0)
        super().__init__(call, torch.cat([part.query for part in maps], 2), longest.key, detached=True)
        self._maps = tuple(maps)

    def detach(self) -> AttentionMap:
        return self

    def keep(self) -> AttentionMap:
        return ConcatenatedMap([part.keep() for part in self._maps])

    def scores(self, stage: Stage = "raw") -> ScoreMap:
        raise ArgumentError("concatenated maps have no scores; ask the map of one call")

    @contextmanager
    def tiles(
        self, rows: range | None = None, heads: range | None = None, sequences: range | None = None
    ) -> Iterator[Iterator[tile_stream.Tile]]:
        with torch.no_grad(), torch.autocast(self.call.device.type, enabled=False):
            yield self._tiles(range(self.call.queries) if rows is None else rows, heads, sequences)

    def _tiles(self, rows: range, heads: range | None, sequences: range | None) -> Iterator[tile_stream.Tile]:
        begin = 0
        for part in self._maps:
            end = begin + part.call.queries
            own = rows[bisect_left(rows, begin) : bisect_left(rows, end)]
            for tile in tile_stream.tiles(part, range(own.start - begin, own.stop - begin, own.step), heads, sequences):
                yield replace(tile, rows=slice(tile.rows.start + begin, tile.rows.stop + begin, tile.rows.step))
            begin = end

    def _of(self, runs: Iterable[Tensor]) -> list[Tensor]:
        return [self._weights(rows) for rows in runs]

    def _weights(self, rows: Tensor) -> Tensor:
        call, begin = self.call, 0
        weights = torch.zeros(call.batch, call.heads, len(rows), call.keys, dtype=call.accumulation_dtype, device=call.device)
        for part in self._maps:
            is_own = (rows >= begin) & (rows < begin + part.call.queries)
            if is_own.any():
                weights[:, :, is_own, : part.call.keys] = part.rows(rows[is_own] - begin)
            begin += part.call.queries
        return weights
