"""Maps of any length at every scale, in tiles of 256 x 256 numbers that are computed on request.

At level n each number represents 2ⁿ x 2ⁿ weights. The weights of a row are normalized over all of its keys, so that one
tile costs as much as the whole strip of tiles beside it, which is therefore computed with it. If a strip would take too
long for a request, it is computed from a sample of its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from attent.attention.maps.statistics import HeadStatistics
from attent.attention.maps.tiles import Tile
from attent.errors import ArgumentError, check_index, check_known, refuse
from attent.explorer.scheduler import LRUCache, Scheduler
from attent.views.scene import LayerWeights

TILE_SIDE, THUMBNAIL_SIDE = 256, 48
# Maximum weights computed for a strip or a column: a tenth of a second on one core.
STRIP_WEIGHTS = 2**24
# Maximum weights for one thumbnail; a page has hundreds.
THUMBNAIL_WEIGHTS = 2**20
# Maximum weights for the statistics of a layer.
STATISTICS_WEIGHTS = 2**23
# Adjacent tiles that are computed together.
TILES_PER_STRIP = 8
REDUCTIONS = ("mean", "max")

Reduction = Literal["mean", "max"]
# One row in this many is computed; 1 for all rows.
SamplingStep = int


@dataclass(frozen=True)
class MapRegion:
    """A region of a map, possibly pooled.

    Args:
        values: the numbers, (height, width).
        is_exact: whether they are computed from all rows, not from a sample.
        note: a description of each number, if it is not a single weight.
    """

    values: Tensor
    is_exact: bool = True
    note: str = ""


@dataclass(frozen=True)
class HeadView:
    """A head of a layer, or the mean over its heads.

    Args:
        name: a key that identifies the layer.
        layer: the weights of the layer.
        head: the head, from 0; None for the mean.

    Raises:
        ArgumentError: there is no such head.
    """

    name: Hashable
    layer: LayerWeights
    head: int | None

    def __post_init__(self) -> None:
        if self.head is not None and not 0 <= self.head < self.layer.shape[0]:
            raise ArgumentError(f"head must be from 0 to {self.layer.shape[0] - 1}, or mean, got {self.head}")

    @property
    def key(self) -> tuple[Hashable, int | None]:
        """The key of its numbers in a cache."""
        return self.name, self.head

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(Tq, Tk)."""
        return self.layer.shape[1:]

    @property
    def heads(self) -> range:
        """The heads to compute."""
        return range(self.layer.shape[0]) if self.head is None else range(self.head, self.head + 1)

    @property
    def top_level(self) -> int:
        """The level at which the map is a single tile."""
        return _level(max(self.shape), TILE_SIDE)

    def weight_count(self, rows: int) -> int:
        """Return how many weights must be computed for this number of rows."""
        return rows * self.shape[1] * len(self.heads)

    def stream_rows(self, rows: range) -> Iterator[tuple[range, Tensor, int]]:
        """Iterate over some rows, a few at a time; see `pooling.mean_over_heads`."""
        weights, sequence = self.layer.weights, self.layer.sequence
        if isinstance(weights, Tensor):
            dense = self.layer.rows(torch.arange(rows.start, rows.stop, rows.step))[self.heads.start : self.heads.stop]
            yield rows, dense.mean(0), 0
            return
        with weights.tiles(rows, self.heads, range(sequence, sequence + 1)) as tiles:
            yield from mean_over_heads(tiles, self.shape[1], len(self.heads))

    def row(self, query: int) -> MapRegion:
        """Return the weights of one query: (1, Tk)."""
        return MapRegion(self.block(range(query, query + 1), range(self.shape[1])), note=self._mean_note)

    def column(self, key: int) -> MapRegion:
        """Return the weights on one key: (1, Tq). In a long text, all but a sample of queries are NaN."""
        length = self.shape[0]
        step = sampling_step(self.weight_count(length), STRIP_WEIGHTS, length)
        rows = range(step // 2, length, step)
        values = torch.full((1, length), torch.nan)
        values[:, rows.start :: step] = 0.0
        for part, weights, start in self.stream_rows(rows):
            if start <= key < start + weights.shape[1]:
                values[0, part.start : part.stop : step] = weights[:, key - start]
        note = ", ".join(filter(None, (self._mean_note, f"1 row in {step:,} was computed" if step > 1 else "")))
        return MapRegion(values, step == 1, note)

    def thumbnail(self) -> MapRegion:
        """Return the whole map, pooled to at most 48 x 48."""
        queries, keys = self.shape
        level = _level(max(self.shape), THUMBNAIL_SIDE)
        step = sampling_step(self.weight_count(queries), THUMBNAIL_WEIGHTS, queries)
        pooler = BlockPooler(0, block_count(queries, level), range(keys), level, ("mean",))
        self.add_to(pooler, range(step // 2, queries, step))
        return MapRegion(pooler.result("mean"), step == 1, f"from 1 row in {step:,}" if step > 1 else "")

    def block(self, rows: range, keys: range) -> Tensor:
        """Return the weights of adjacent rows and keys: (len(rows), len(keys))."""
        values = torch.zeros(len(rows), len(keys))
        for part, weights, start in self.stream_rows(rows):
            begin, end = max(keys.start, start), min(keys.stop, start + weights.shape[1])
            if begin < end:
                index = slice(part.start - rows.start, part.stop - rows.start)
                values[index, begin - keys.start : end - keys.start] = weights[:, begin - start : end - start]
        return values

    def add_to(self, pooler: BlockPooler, rows: range) -> None:
        """Add some rows to a pooler."""
        for part, weights, start in self.stream_rows(rows):
            pooler.add(part, weights, start)

    def note(self, level: int, reduction: str, step: int = 1) -> str:
        """Return a description of each number of a tile; empty if it is a single weight of one head."""
        parts = [
            f"{'mean' if reduction == 'mean' else 'largest'} of {1 << level} x {1 << level} weights" if level else "",
            self._mean_note,
            f"from 1 row in {step:,}" if step > 1 else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def _mean_note(self) -> str:
        return f"mean over {len(self.heads)} heads" if len(self.heads) > 1 else ""


class TilePyramid:
    """Computes the tiles of any map at every level.

    Args:
        scheduler: the scheduler of all computations.
        cache: the cache of computed tiles.
    """

    def __init__(self, scheduler: Scheduler, cache: LRUCache) -> None:
        self.scheduler, self.cache = scheduler, cache

    def tile(self, view: HeadView, level: int, y: int, x: int, reduction: Reduction = "mean") -> MapRegion:
        """Return the tile in row y and column x, from 0; tiles at the lower and right edges may be smaller.

        Raises:
            ArgumentError: there is no such tile.
            UnknownNameError: the reduction is neither "mean" nor "max".
        """
        check_known("way of pooling", reduction, REDUCTIONS)
        check_index("level", level, view.top_level + 1)
        for name, number, length in (("y", y, view.shape[0]), ("x", x, view.shape[1])):
            count = -(-block_count(length, level) // TILE_SIDE)
            refuse((not 0 <= number < count, f"{name} must be from 0 to {count - 1} at level {level}, got {number}"))
        block, column = divmod(x, TILES_PER_STRIP)
        strip, step = self._strip(view, level, y, block, reduction)
        return MapRegion(
            strip[:, column * TILE_SIDE : (column + 1) * TILE_SIDE], step == 1, view.note(level, reduction, step)
        )

    def _strip(
        self, view: HeadView, level: int, y: int, strip_x: int, reduction: Reduction
    ) -> tuple[Tensor, SamplingStep]:
        """Return adjacent tiles, and the sampling step with which they were computed."""
        rows, keys = (
            range(number * size, min((number + 1) * size, length))
            for number, size, length in zip(
                (y, strip_x), (TILE_SIDE << level, (TILES_PER_STRIP * TILE_SIDE) << level), view.shape, strict=True
            )
        )
        step = sampling_step(view.weight_count(len(rows)), STRIP_WEIGHTS, len(rows)) if level else 1
        key = view.key, level, y, strip_x, reduction if level else ""
        if (strip := self.cache.get(key)) is None:
            with self.scheduler.foreground():
                if level == 0:
                    strip = view.block(rows, keys)
                else:
                    first = rows.start >> level
                    pooler = BlockPooler(first, block_count(rows.stop, level) - first, keys, level, (reduction,))
                    view.add_to(pooler, rows[step // 2 :: step])
                    strip = pooler.result(reduction)
            self.cache.put(key, strip)
        return strip, step


def sampled_head_statistics(
    layer: LayerWeights, *, is_self_attention: bool
) -> tuple[list[dict[str, float | None]], SamplingStep]:
    """Return each head's statistics over all queries, or over a sample of many, and the sampling step."""
    heads, queries, keys = layer.shape
    statistics = HeadStatistics(heads, is_distribution=layer.is_distribution, is_self_attention=is_self_attention)
    step = sampling_step(heads * queries * keys, STATISTICS_WEIGHTS, queries) if layer.is_distribution else 1
    if layer.is_distribution:
        for rows in torch.arange(step // 2, queries, step).split(max(STATISTICS_WEIGHTS // 8 // (heads * keys), 1)):
            statistics.add(layer.rows(rows), rows + keys - queries)
    return statistics.named(), step


def sampling_step(weights: int, bound: int, rows: int) -> SamplingStep:
    """Return the smallest sampling step that keeps the number of weights within a bound.

    It is a power of two and leaves at least one row.
    """
    return 1 << min(_level(weights, bound), max(rows.bit_length() - 1, 0))


def _level(length: int, bound: int) -> int:
    """Return how many times a length must be halved to be within a bound."""
    return max(-(-length // bound) - 1, 0).bit_length()


def block_count(length: int, level: int) -> int:
    """Return the number of blocks of 2ⁿ positions in a length, where n is the level; the last may be shorter."""
    return -(-length >> level)


class BlockPooler:
    """Computes means or maxima of blocks, or both; each row is added once.

    A block is pooled from those of its rows that were added. A block without any repeats the numbers of the preceding
    block.

    Args:
        first: the first block of rows.
        count: the number of blocks of rows.
        keys: the keys to pool; the first must be at the beginning of a block.
        level: the level n.
        reductions: "mean", "max" or both.
    """

    def __init__(self, first: int, count: int, keys: range, level: int, reductions: Sequence[str]) -> None:
        self.first, self.keys, self.level = first, keys, level
        width = block_count(len(keys), level)
        self._pooled = {name: torch.full((count, width), 0.0 if name == "mean" else -torch.inf) for name in reductions}
        self._row_counts = torch.zeros(count)

    def add(self, rows: range, weights: Tensor, start: int = 0) -> None:
        """Add some rows.

        Args:
            rows: the row numbers, ascending.
            weights: (len(rows), n), for the n keys from `start` on; the weights on all other keys are zero.
            start: the first key.
        """
        begin, end = max(start, self.keys.start), min(start + weights.shape[1], self.keys.stop)
        inside = weights[:, begin - start : max(end, begin) - start]
        start = min(max(begin - self.keys.start, 0), len(self.keys))
        columns = slice(start >> self.level, block_count(start + inside.shape[1], self.level))
        is_full = inside.shape[1] == len(self.keys)
        for block, count, index in _group_by_block(rows, self.level):
            part = inside[index].unflatten(0, (count, -1))  # (blocks, rows of each, n)
            target = slice(block - self.first, block - self.first + count)
            self._row_counts[target] += part.shape[1]
            if "mean" in self._pooled and part.shape[2]:
                self._pooled["mean"][target, columns] += self._split_blocks(part.sum(1), start, 0.0).sum(-1)
            if "max" in self._pooled:
                self._update_max(self._pooled["max"][target], part, start, columns, is_full=is_full)

    def result(self, reduction: str) -> Tensor:
        """Return the pooled numbers, (blocks of rows, blocks of keys)."""
        is_added, pooled = self._row_counts > 0, self._pooled[reduction]
        if reduction == "mean":
            pooled = pooled / (self._row_counts.clamp(min=1)[:, None] * block_lengths(len(self.keys), self.level))
        if not bool(is_added.all()):
            # the nearest preceding block with rows, or the first one for those before it
            nearest = torch.where(is_added, torch.arange(len(is_added)), -1).cummax(0).values
            pooled = pooled[nearest.clamp(min=int(is_added.int().argmax()))]
        return pooled

    def _update_max(self, pooled: Tensor, part: Tensor, start: int, columns: slice, *, is_full: bool) -> None:
        """Update the maxima in place; hidden pairs have weight zero."""
        if part.shape[2]:
            largest = self._split_blocks(part.amax(1), start, -torch.inf if is_full else 0.0).amax(-1)
            pooled[:, columns] = torch.maximum(pooled[:, columns], largest)
        if not is_full:
            pooled[:, : columns.start].clamp_(min=0.0)
            pooled[:, columns.stop :].clamp_(min=0.0)

    def _split_blocks(self, numbers: Tensor, start: int, fill: float) -> Tensor:
        """Split numbers (…, n) of the keys from `start` on into blocks (…, blocks, 2ⁿ), padded with `fill`."""
        size = 1 << self.level
        before = start & (size - 1)
        after = -(before + numbers.shape[1]) & (size - 1)
        padded = pad(numbers, (before, after), value=fill) if before or after else numbers
        return padded.unflatten(1, (-1, size))


def mean_over_heads(tiles: Iterable[Tile], key_count: int, head_count: int) -> Iterator[tuple[range, Tensor, int]]:
    """Iterate over the rows of one sequence's map, averaged over its heads.

    Args:
        tiles: the tiles of the map.
        key_count: the number of keys, Tk.
        head_count: the number of heads in these tiles; tiles of the same rows are consecutive.

    Yields:
        The rows, their weights (rows, n) on the CPU in a buffer that is reused for the next item, and the first of the
        n keys.
    """
    total: Tensor | None = None
    heads_so_far = 0
    for tile in tiles:
        rows = range(tile.rows.start, tile.rows.stop, tile.rows.step or 1)
        weights, start = tile.weights[0].float(), tile.columns.start or 0  # (h, rows, n)
        if head_count == 1:
            yield rows, weights[0].cpu(), start
            continue
        if total is None:
            total, heads_so_far = torch.zeros(len(rows), key_count), 0
        total[:, start : start + weights.shape[2]] += weights.sum(0).cpu()
        heads_so_far += len(weights)
        if heads_so_far == head_count:
            yield rows, total / head_count, 0
            total = None


def block_lengths(length: int, level: int) -> Tensor:
    """Return the number of positions in each block."""
    lengths = torch.full((block_count(length, level),), float(1 << level))
    if length:
        lengths[-1] = length - ((len(lengths) - 1) << level)
    return lengths


def _group_by_block(rows: range, level: int) -> Iterator[tuple[int, int, slice]]:
    """Yield groups of blocks with equally many rows: the first block, the number of blocks, and their rows' slice."""
    full = max((1 << level) // rows.step, 1)
    begin = 0
    while begin < len(rows):
        block = rows[begin] >> level
        end = begin + len(range(rows[begin], min((block + 1) << level, rows.stop), rows.step))
        count = 1
        if end - begin == full and rows.step <= 1 << level:
            # so have the blocks that follow, except the last
            count = max((len(rows) - begin) // full, 1)
            end = begin + count * full
        yield block, count, slice(begin, end)
        begin = end
