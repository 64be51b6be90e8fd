"""Pooling the rows of a map, a few at a time: each block of 2ⁿ rows and 2ⁿ keys becomes one number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from attent.attention.maps.tiles import Tile


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
