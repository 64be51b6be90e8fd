"""The weights of some rows, a few at a time, made small: runs of 2ⁿ rows by runs of 2ⁿ keys, each one number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from attent.attention.maps.tiles import Tile


def runs(length: int, level: int) -> int:
    """How many runs of 2ⁿ a length makes, the last of them perhaps shorter."""
    return -(-length >> level)


class Pooled:
    """Means or largest weights, or both, each row told once.

    Where only some rows of a run are told, its numbers are those of these rows; where none is, those of the run before it.

    Args:
        first: the first run of rows.
        count: how many runs of rows there are.
        keys: the keys, from the first of them to behind the last; the first is at the beginning of a run.
        level: n.
        hows: "mean", "max" or both.
    """

    def __init__(self, first: int, count: int, keys: range, level: int, hows: Sequence[str]) -> None:
        self.first, self.keys, self.level = first, keys, level
        self.width = runs(len(keys), level)
        self._found = {how: torch.full((count, self.width), 0.0 if how == "mean" else -torch.inf) for how in hows}
        self._told = torch.zeros(count)

    def add(self, rows: range, weights: Tensor, start: int = 0) -> None:
        """Tell some rows.

        Args:
            rows: which they are, ascending.
            weights: (len(rows), n), those of the n keys from `start` on, among them any of ours; of other keys weights are zero.
            start: the first key.
        """
        first, last = max(start, self.keys.start), min(start + weights.shape[1], self.keys.stop)
        here = weights[:, first - start : max(last, first) - start]
        start = min(max(first - self.keys.start, 0), len(self.keys))
        columns = slice(start >> self.level, runs(start + here.shape[1], self.level))
        whole = here.shape[1] == len(self.keys)
        for run, count, part in _by_run(rows, self.level):
            some = here[part].unflatten(0, (count, -1))  # (runs, rows of each, n)
            place = slice(run - self.first, run - self.first + count)
            self._told[place] += some.shape[1]
            if "mean" in self._found and some.shape[2]:
                self._found["mean"][place, columns] += self._cut(some.sum(1), start, 0.0).sum(-1)
            if "max" in self._found:
                self._largest(self._found["max"][place], some, start, columns, whole=whole)

    def take(self, how: str) -> Tensor:
        """What was made of all that was told, (runs of rows, runs of keys)."""
        told, found = self._told > 0, self._found[how]
        if how == "mean":
            found = found / (self._told.clamp(min=1)[:, None] * sizes(len(self.keys), self.level))
        if not bool(told.all()):
            # the nearest run before that was told, of those before any the first
            nearest = torch.where(told, torch.arange(len(told)), -1).cummax(0).values
            found = found[nearest.clamp(min=int(told.int().argmax()))]
        return found

    def _largest(self, found: Tensor, some: Tensor, start: int, columns: slice, *, whole: bool) -> None:
        """Enter what is largest; hidden pairs weigh nothing."""
        if some.shape[2]:
            largest = self._cut(some.amax(1), start, -torch.inf if whole else 0.0).amax(-1)
            found[:, columns] = torch.maximum(found[:, columns], largest)
        if not whole:
            found[:, : columns.start].clamp_(min=0.0)
            found[:, columns.stop :].clamp_(min=0.0)

    def _cut(self, numbers: Tensor, start: int, beyond: float) -> Tensor:
        """Numbers (runs of rows, n) of the keys from `start` on by runs, (…, runs, 2ⁿ), filled up to whole ones."""
        size = 1 << self.level
        before = start & (size - 1)
        behind = -(before + numbers.shape[1]) & (size - 1)
        padded = torch.nn.functional.pad(numbers, (before, behind), value=beyond) if before or behind else numbers
        return padded.unflatten(1, (-1, size))


def smaller(numbers: Tensor, shape: tuple[int, int], level: int, how: str) -> Tensor:
    """What is pooled at one level made smaller to the next, each number by how many rows and keys it stands for.

    Args:
        numbers: (runs of rows, runs of keys) at `level`.
        shape: (Tq, Tk).
        level: of these numbers.
        how: "mean" or "max".
    """
    weighs = [sizes(length, level) for length in shape]
    full = [size.new_zeros(runs(len(size), 1) * 2) for size in weighs]
    for size, whole in zip(weighs, full, strict=True):
        whole[: len(size)] = size
    padding = (0, len(full[1]) - numbers.shape[1], 0, len(full[0]) - numbers.shape[0])
    if how == "max":
        return torch.nn.functional.pad(numbers, padding, value=-torch.inf).unflatten(1, (-1, 2)).amax(-1).unflatten(0, (-1, 2)).amax(1)
    share = full[0][:, None] * full[1]
    summed = (torch.nn.functional.pad(numbers, padding) * share).unflatten(1, (-1, 2)).sum(-1).unflatten(0, (-1, 2)).sum(1)
    return summed / share.unflatten(1, (-1, 2)).sum(-1).unflatten(0, (-1, 2)).sum(1)


def rows_of(tiles: Iterable[Tile], keys: int, heads: int) -> Iterator[tuple[range, Tensor, int]]:
    """The rows of a streamed map of one sequence, those of several heads as their mean.

    Args:
        tiles: of the map.
        keys: Tk.
        heads: how many heads there are in these tiles; those of the same rows come one after another.

    Yields:
        The rows, their weights (rows, n), to be used before the next come, and the first of the n keys.
    """
    whole: Tensor | None = None
    done = 0
    for tile in tiles:
        rows = range(tile.rows.start, tile.rows.stop, tile.rows.step or 1)
        weights, start = tile.weights[0].float(), tile.columns.start or 0  # (h, rows, n)
        # what is made of them lies with the processor, whatever device the model is on
        if heads == 1:
            yield rows, weights[0].cpu(), start
            continue
        if whole is None:
            whole, done = torch.zeros(len(rows), keys), 0
        whole[:, start : start + weights.shape[2]] += weights.sum(0).cpu()
        done += len(weights)
        if done == heads:
            yield rows, whole / heads, 0
            whole = None


def sizes(length: int, level: int) -> Tensor:
    """How many places each run stands for."""
    found = torch.full((runs(length, level),), float(1 << level))
    if length:
        found[-1] = length - ((len(found) - 1) << level)
    return found


def _by_run(rows: range, level: int) -> Iterator[tuple[int, int, slice]]:
    """The rows by the runs that they belong to: a run and how many from it on have equally many rows side by side, and which these are."""
    each = max((1 << level) // rows.step, 1)
    first = 0
    while first < len(rows):
        run = rows[first] >> level
        last = first + len(range(rows[first], min((run + 1) << level, rows.stop), rows.step))
        count = 1
        if last - first == each and rows.step <= 1 << level:
            # so do those that follow, but for the last
            count = max((len(rows) - first) // each, 1)
            last = first + count * each
        yield run, count, slice(first, last)
        first = last
