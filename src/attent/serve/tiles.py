"""A map of any length at every scale: tiles of 256 x 256 numbers, computed when somebody looks at them.

At level n each number stands for 2ⁿ x 2ⁿ weights. The weights of a row are normalised over all of its keys, so that a tile costs as
much as the strip of tiles beside it, which is computed at once. Where that takes too long to wait for, some rows of each run speak for
it at first, and the exact numbers are prepared in the background: those of all higher levels together, in one pass over the map.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from attent.errors import ArgumentError, UnknownNameError
from attent.serve.kept import Kept
from attent.serve.pooling import Pooled, rows_of, runs, smaller
from attent.serve.turns import Turns, Work
from attent.views.scene import Layer

SIDE = 256
# Weights that are computed while somebody waits, a twelfth of a second on one core; and rows at a time in the background.
AT_ONCE = 2**24
STEP = 2**22
# Numbers of the level that all higher ones are made of.
BASE = 2**21
# Tiles side by side that are kept of a strip of single weights.
BESIDE = 8

How = Literal["mean", "max"]


@dataclass(frozen=True)
class Part:
    """Some numbers of a map.

    Args:
        values: (height, width).
        exact: whether they are what they are said to be; else they are made of some of the rows.
        note: what each of them is, where it is not a single weight.
    """

    values: Tensor
    exact: bool = True
    note: str = ""


@dataclass(frozen=True)
class Sheet:
    """One head of a layer, or the mean over its heads.

    Args:
        name: a key of its own; no two layers share one.
        layer: the weights.
        head: from 0; None for the mean.

    Raises:
        ArgumentError: there is no such head.
    """

    name: Hashable
    layer: Layer
    head: int | None

    def __post_init__(self) -> None:
        if self.head is not None and not 0 <= self.head < self.layer.shape[0]:
            raise ArgumentError(f"head must be from 0 to {self.layer.shape[0] - 1}, or mean, got {self.head}")

    @property
    def key(self) -> tuple[Hashable, int | None]:
        """By which its numbers are kept."""
        return self.name, self.head

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(Tq, Tk)."""
        return self.layer.shape[1:]

    @property
    def heads(self) -> range:
        """Those that are computed."""
        return range(self.layer.shape[0]) if self.head is None else range(self.head, self.head + 1)

    @property
    def top(self) -> int:
        """The level at which all of it is one tile."""
        return max(-(-max(self.shape) // SIDE) - 1, 0).bit_length()

    @property
    def base(self) -> int:
        """The level that is kept, and all higher ones are made of."""
        return next(level for level in range(1, 64) if runs(self.shape[0], level) * runs(self.shape[1], level) <= BASE)

    def cells(self, rows: int) -> int:
        """How many weights so many rows are."""
        return rows * self.shape[1] * len(self.heads)

    def told(self, rows: range) -> Iterator[tuple[range, Tensor, int]]:
        """Some rows, a few at a time: see `pooling.rows_of`."""
        weights, which = self.layer.weights, self.layer.sequence
        if isinstance(weights, Tensor):
            dense = self.layer.rows(torch.arange(rows.start, rows.stop, rows.step))[self.heads.start : self.heads.stop]
            yield rows, dense.mean(0), 0
            return
        with weights.tiles(rows, self.heads, range(which, which + 1)) as tiles:
            yield from rows_of(tiles, self.shape[1], len(self.heads))


class Tiles:
    """Tiles of any map.

    Args:
        turns: who computes when.
        kept: what was computed.
    """

    def __init__(self, turns: Turns, kept: Kept) -> None:
        self.turns, self.kept = turns, kept

    def tile(self, sheet: Sheet, level: int, y: int, x: int, how: How = "mean") -> Part:
        """The tile that is the y-th from the top and the x-th from the left, smaller at the lower and the right edge.

        Raises:
            ArgumentError: there is no such tile.
            UnknownNameError: how is neither "mean" nor "max".
        """
        if how not in ("mean", "max"):
            raise UnknownNameError("way of pooling", how, ("mean", "max"))
        if not 0 <= level <= sheet.top:
            raise ArgumentError(f"level must be from 0 to {sheet.top}, got {level}")
        for name, place, length in (("y", y, sheet.shape[0]), ("x", x, sheet.shape[1])):
            if not 0 <= place * SIDE < runs(length, level):
                raise ArgumentError(f"{name} must be from 0 to {-(-runs(length, level) // SIDE) - 1} at level {level}, got {place}")
        if level == 0:
            first = x // BESIDE * BESIDE
            return Part(self._single(sheet, y, first)[:, (x - first) * SIDE : (x - first + 1) * SIDE], note=_note(sheet, 0, how))
        strip, every = self._strip(sheet, level, y, how)
        return Part(strip[:, x * SIDE : (x + 1) * SIDE], every == 1, _note(sheet, level, how, every))

    def _single(self, sheet: Sheet, y: int, x: int) -> Tensor:
        """The weights themselves, of a strip those from one tile on."""
        key = (sheet.key, "weights", y, x)
        if (found := self.kept.get(key)) is None:
            with self.turns.now():
                rows = range(y * SIDE, min((y + 1) * SIDE, sheet.shape[0]))
                columns = range(x * SIDE, min((x + BESIDE) * SIDE, sheet.shape[1]))
                found = torch.zeros(len(rows), len(columns))
                for some, weights, start in sheet.told(rows):
                    first, last = max(columns.start, start), min(columns.stop, start + weights.shape[1])
                    if first < last:
                        place = slice(some.start - rows.start, some.stop - rows.start)
                        found[place, first - columns.start : last - columns.start] = weights[:, first - start : last - start]
            self.kept.put(key, found)
        return found

    def _strip(self, sheet: Sheet, level: int, y: int, how: How) -> tuple[Tensor, int]:
        """All tiles beside each other, and of how many rows one was computed."""
        if (found := self._exact(sheet, level, y, how)) is not None:
            return found, 1
        rows = self._rows(sheet, level, y)
        every = stride(sheet.cells(len(rows)), AT_ONCE)
        key = (sheet.key, level, y, how, every)
        if every > 1:
            self.turns.later(*self._prepared(sheet, level, y))
        if (found := self.kept.get(key)) is None:
            with self.turns.now():
                pooled = self._pooled(sheet, level, y)
                for some, weights, start in sheet.told(rows[every // 2 :: every]):
                    pooled.add(some, weights, start)
            found = pooled.take(how)
            self.kept.put(key, found)
        return found, every

    def _exact(self, sheet: Sheet, level: int, y: int, how: How) -> Tensor | None:
        """A strip that is known exactly, or follows from what is."""
        if (found := self.kept.get((sheet.key, level, y, how, 1))) is not None:
            return found
        if level < sheet.base or (found := self.kept.get((sheet.key, "base", how))) is None:
            return None
        for below in range(sheet.base, level):
            found = smaller(found, sheet.shape, below, how)
        return found[y * SIDE : (y + 1) * SIDE]

    def _prepared(self, sheet: Sheet, level: int, y: int) -> tuple[Hashable, Work]:
        """What is to be done in the background for a strip to be exact, and its key."""
        if level >= sheet.base:
            return (sheet.key, "base"), lambda: self._prepare(sheet, sheet.base, None)
        return (sheet.key, level, y), lambda: self._prepare(sheet, level, y)

    def _prepare(self, sheet: Sheet, level: int, y: int | None) -> Iterator[None]:
        """Compute a strip exactly, or, without one, the level that all higher ones are made of; a little at each step."""
        where = (sheet.key, "base") if y is None else (sheet.key, level, y)
        names = {how: (*where, how, *(() if y is None else (1,))) for how in ("mean", "max")}
        if all(self.kept.get(name) is not None for name in names.values()):
            return
        pooled = self._pooled(sheet, level, y)
        rows = self._rows(sheet, level, y)
        step = max(STEP // sheet.cells(1), 1)
        for first in range(0, len(rows), step):
            for some, weights, start in sheet.told(rows[first : first + step]):
                pooled.add(some, weights, start)
            yield
        for how, name in names.items():
            self.kept.put(name, pooled.take(how))

    def _rows(self, sheet: Sheet, level: int, y: int | None) -> range:
        size = SIDE << level
        return range(sheet.shape[0]) if y is None else range(y * size, min((y + 1) * size, sheet.shape[0]))

    def _pooled(self, sheet: Sheet, level: int, y: int | None) -> Pooled:
        first = 0 if y is None else y * SIDE
        return Pooled(first, runs(self._rows(sheet, level, y).stop, level) - first, sheet.shape[1], level)


def stride(cells: int, most: int) -> int:
    """Of how many rows one is computed, a power of two, for no more weights than `most` to be computed."""
    return 1 << max(-(-cells // most) - 1, 0).bit_length()


def _note(sheet: Sheet, level: int, how: str, every: int = 1) -> str:
    """What each number of a tile is; nothing where it is a single weight of a head."""
    parts: list[str] = []
    if level:
        parts.append(f"{'mean' if how == 'mean' else 'largest'} of {1 << level} x {1 << level} weights")
    if len(sheet.heads) > 1:
        parts.append(f"mean over {len(sheet.heads)} heads")
    if every > 1:
        parts.append(f"from 1 row in {every:,} until the exact one is computed")
    return ", ".join(parts)
