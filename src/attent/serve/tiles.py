"""A map of any length at every scale: tiles of 256 x 256 numbers, computed when somebody looks at them.

At level n each number stands for 2ⁿ x 2ⁿ weights. The weights of a row are normalised over all of its keys, so that a tile costs as
much as the strip of tiles beside it, which is computed at once. Where that takes too long to wait for, some rows of each run speak for
it at first, and the exact numbers are prepared in the background: those of all higher levels together, in one pass over the map.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from attent.errors import ArgumentError, UnknownNameError
from attent.serve.lru_cache import Kept
from attent.serve.pooling import Pooled, rows_of, runs, smaller
from attent.serve.scheduler import Turns
from attent.views.scene import Layer

SIDE = 256
# Weights of a strip that are computed while somebody waits, a thirtieth of a second on one core; those of a whole map; and those of a
# step in the background.
AT_ONCE = 2**22
WHOLE = 2**25
STEP = 2**22
# Numbers of the level that all higher ones are made of.
BASE = 2**21
# Tiles side by side that are computed together.
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
        block, beside = divmod(x, BESIDE)
        found, every = self._strip(sheet, level, y, block, how)
        return Part(found[:, beside * SIDE : (beside + 1) * SIDE], every == 1, _note(sheet, level, how, every))

    def _strip(self, sheet: Sheet, level: int, y: int, block: int, how: How) -> tuple[Tensor, int]:
        """Some tiles side by side, and of how many rows one was computed."""
        if (found := self._known(sheet, level, y, block, how)) is not None:
            return found, 1
        key, rows = (sheet.key, level, y, block), _rows(sheet, level, y)
        if level == 0:
            with self.turns.now():
                found = self._single(sheet, rows, _keys(sheet, level, block))
            self.kept.put((key, "", 1), found)
            return found, 1
        if level >= sheet.base and sheet.cells(sheet.shape[0]) <= WHOLE:
            with self.turns.now():
                for _ in self._prepare(sheet, sheet.base, None):
                    pass
            if (found := self._known(sheet, level, y, block, how)) is not None:
                return found, 1
        every = stride(sheet.cells(len(rows)), AT_ONCE, len(rows))
        if every > 1:
            where = (sheet.base, None) if level >= sheet.base else (level, (y, block))
            self.turns.later((sheet.key, *where), lambda: self._prepare(sheet, *where))
        if (found := self.kept.get((key, how, every))) is None:
            with self.turns.now():
                pooled = _pooled(sheet, level, (y, block), (how,))
                for some, weights, start in sheet.told(rows[every // 2 :: every]):
                    pooled.add(some, weights, start)
            found = pooled.take(how)
            self.kept.put((key, how, every), found)
        return found, every

    def _known(self, sheet: Sheet, level: int, y: int, block: int, how: How) -> Tensor | None:
        """Tiles that are known exactly, or follow from what is."""
        if level < sheet.base:
            return self.kept.get(((sheet.key, level, y, block), how if level else "", 1))
        below = next((one for one in range(level, sheet.base - 1, -1) if self.kept.get((sheet.key, one, how)) is not None), None)
        found = None if below is None else self.kept.get((sheet.key, below, how))
        if below is None or found is None:
            return None
        for one in range(below, level):
            found = smaller(found, sheet.shape, one, how)
            self.kept.put((sheet.key, one + 1, how), found)
        return found[y * SIDE : (y + 1) * SIDE, block * BESIDE * SIDE : (block + 1) * BESIDE * SIDE]

    def _single(self, sheet: Sheet, rows: range, keys: range) -> Tensor:
        """The weights themselves."""
        found = torch.zeros(len(rows), len(keys))
        for some, weights, start in sheet.told(rows):
            first, last = max(keys.start, start), min(keys.stop, start + weights.shape[1])
            if first < last:
                place = slice(some.start - rows.start, some.stop - rows.start)
                found[place, first - keys.start : last - keys.start] = weights[:, first - start : last - start]
        return found

    def _prepare(self, sheet: Sheet, level: int, where: tuple[int, int] | None) -> Iterator[None]:
        """Compute some tiles exactly, or, without a place, the level that all higher ones are made of; a little at each step."""
        hows = ("mean", "max")
        names = {how: (sheet.key, level, how) if where is None else ((sheet.key, level, *where), how, 1) for how in hows}
        if all(self.kept.get(name) is not None for name in names.values()):
            return
        pooled, rows = _pooled(sheet, level, where, hows), _rows(sheet, level, None if where is None else where[0])
        step = max(STEP // sheet.cells(1), 1)
        for first in range(0, len(rows), step):
            for some, weights, start in sheet.told(rows[first : first + step]):
                pooled.add(some, weights, start)
            yield
        for how, name in names.items():
            self.kept.put(name, pooled.take(how))


def _rows(sheet: Sheet, level: int, y: int | None) -> range:
    size = SIDE << level
    return range(sheet.shape[0]) if y is None else range(y * size, min((y + 1) * size, sheet.shape[0]))


def _keys(sheet: Sheet, level: int, block: int | None) -> range:
    size = (BESIDE * SIDE) << level
    return range(sheet.shape[1]) if block is None else range(block * size, min((block + 1) * size, sheet.shape[1]))


def _pooled(sheet: Sheet, level: int, where: tuple[int, int] | None, hows: Sequence[str]) -> Pooled:
    y, block = (None, None) if where is None else where
    first = 0 if y is None else y * SIDE
    return Pooled(first, runs(_rows(sheet, level, y).stop, level) - first, _keys(sheet, level, block), level, hows)


def stride(cells: int, most: int, rows: int) -> int:
    """Of how many rows one is computed, a power of two, for no more weights than `most` to be computed; one row at the least is."""
    return 1 << min(max(-(-cells // most) - 1, 0).bit_length(), max(rows.bit_length() - 1, 0))


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
