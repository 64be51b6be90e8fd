"""Which weights dropout keeps: a function of (seed, b, h, i, j), so that every implementation and every recomputation agree.

The bits are those of a counter run through the integer hash "lowbias32" (Wellons 2018), two rounds of multiply and
xor-shift: once for the seed, once for the row (b, h, i), once for the column j and once more for their sum. The row is hashed
whole: a hash of a hash of a hash, which each use their argument twice, takes compilers a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from attent.ops import native

WORD = 0xFFFFFFFF
# odd and far from small ratios: the primes of xxHash (Collet 2012), one for each axis of a row
_SEQUENCE, _HEAD, _ROW = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
# keeps the column's hash from being that of a row of the same number
_COLUMN = 0x5BD1E995

Word = TypeVar("Word", int, Tensor)


def _mixed(bits: Word) -> Word:
    # 32-bit words held in int64 and cut after each product: compilers that fold constants do not wrap an int32
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & WORD
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & WORD
    return bits ^ (bits >> 16)


@dataclass(frozen=True)
class Drops:
    """Which weights of a tile stay, hashed as far as that goes row by row and column by column."""

    row: Tensor  # (B, H, Tq, 1)
    column: Tensor  # (Tk,)
    probability: float

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, heads: int, batch: int, probability: float, seed: int | Tensor) -> Drops:
        """Hash what `kept` takes."""
        device = columns.device
        start = _mixed(seed & WORD) if isinstance(seed, int) else _mixed(seed.to(device, torch.int64).reshape(1) & WORD)
        sequences = torch.arange(batch, device=device).reshape(-1, 1, 1, 1)
        head = torch.arange(heads, device=device).reshape(1, -1, 1, 1)
        row = _mixed((start + _SEQUENCE * sequences + _HEAD * head + _ROW * rows.reshape(1, 1, -1, 1)) & WORD)
        return cls(row, _mixed((_COLUMN + columns) & WORD), probability)

    @property
    def threshold(self) -> int:
        """Below it, a hash of 32 bits says that the weight goes."""
        return threshold(self.probability)

    @property
    def compiled(self) -> bool:
        """Whether the extension serves; compilers fuse the step with what comes before and after it."""
        here = self.column.device.type == "cpu" and self.threshold <= WORD
        return here and not torch.compiler.is_compiling() and native.library() is not None

    def kept(self) -> Tensor:
        """Which weights stay, boolean (B, H, Tq, Tk)."""
        if self.compiled:
            return torch.ops.attent.kept(self.row, self.column, self.threshold)
        return _mixed((self.row + self.column) & WORD) >= self.threshold

    def drop(self, weights: Tensor, groups: slice, rows: slice, out: Tensor) -> Tensor:
        """Weights (groups, rows, Tk) in which those that go are 0 and those that stay are divided by 1 − probability.

        Args:
            weights: contiguous, of some heads, counted sequence by sequence, and some rows.
            groups: which heads.
            rows: which rows.
            out: where the result goes; may be `weights`.
        """
        row, factor = self.row.flatten(0, 1)[groups, rows], 1.0 / (1.0 - self.probability)
        if self.compiled and weights.dtype == torch.float32:
            words = (row.to(torch.int32).contiguous(), self.column.to(torch.int32))
            native.run("attent_dropped", (*words, weights, out), row.numel(), self.column.numel(), self.threshold, factor)
            return out
        return torch.mul(weights, Drops(row[None], self.column, self.probability).kept()[0], out=out).mul_(factor)


def threshold(probability: float) -> int:
    """Below it, a hash of 32 bits says that the weight goes."""
    return int(probability * (WORD + 1))


def kept(rows: Tensor, columns: Tensor, heads: int, batch: int, probability: float, seed: int | Tensor) -> Tensor:
    """Which weights stay, boolean (B, H, Tq, Tk).

    Args:
        rows: (Tq,), the indices of the queries.
        columns: (Tk,), those of the keys.
        heads: H.
        batch: B.
        probability: the share of weights that is dropped, from 0 to 1.
        seed: a whole number, or a tensor that holds one; its lower 32 bits count.
    """
    return Drops.of(rows, columns, heads, batch, probability, seed).kept()


def drops(number: int, width: int, share: float, seed: int) -> Drops:
    """Which features of so many rows stay, as of the weights of one sequence and one head."""
    return Drops.of(torch.arange(number), torch.arange(width), 1, 1, share, seed)


@torch.library.custom_op("attent::kept", mutates_args=())
def _kept(row: Tensor, column: Tensor, threshold: int) -> Tensor:
    """The last step by the extension, of rows (B, H, Tq, 1) and columns (Tk,) hashed."""
    found = torch.empty(*row.shape[:-1], column.shape[0], dtype=torch.bool)
    if found.numel():
        words = (row.to(torch.int32).contiguous(), column.to(torch.int32).contiguous())
        native.run("attent_kept", (*words, found), row.numel(), column.numel(), threshold)
    return found


@_kept.register_fake
def _(row: Tensor, column: Tensor, threshold: int) -> Tensor:
    return torch.empty(*row.shape[:-1], column.shape[0], dtype=torch.bool, device=row.device)
