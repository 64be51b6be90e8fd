"""Which weights dropout keeps: a function of (seed, b, h, i, j), so that every implementation and every recomputation agree.

The bits are those of a counter run through the integer hash "lowbias32" (Wellons 2018), two rounds of multiply and
xor-shift: once for the seed, once for the row (b, h, i), once for the column j and once more for their sum. The row is hashed
whole: a hash of a hash of a hash, which each use their argument twice, takes compilers a minute.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from attent.attention.extension import library as extension
from attent.attention.parts import Pairs

_WORD = 0xFFFFFFFF
# odd and far from small ratios: the primes of xxHash (Collet 2012), one for each axis of a row
_SEQUENCE, _HEAD, _ROW = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
# keeps the column's hash from being that of a row of the same number
_COLUMN = 0x5BD1E995

Word = TypeVar("Word", int, Tensor)


def _mixed(bits: Word) -> Word:
    # 32-bit words held in int64 and cut after each product: compilers that fold constants do not wrap an int32
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _WORD
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _WORD
    return bits ^ (bits >> 16)


def kept(pairs: Pairs, batch: int, probability: float, seed: int | Tensor) -> Tensor:
    """Which weights stay, boolean (B, H, Tq, Tk).

    Args:
        pairs: the tile.
        batch: B.
        probability: the share of weights that is dropped, from 0 to 1.
        seed: a whole number, or a tensor that holds one; its lower 32 bits count.
    """
    device = pairs.columns.device
    start = _mixed(seed & _WORD) if isinstance(seed, int) else _mixed(seed.to(device, torch.int64).reshape(1) & _WORD)
    sequences = torch.arange(batch, device=device).reshape(-1, 1, 1, 1)
    heads = torch.arange(pairs.heads, device=device).reshape(1, -1, 1, 1)
    row = _mixed((start + _SEQUENCE * sequences + _HEAD * heads + _ROW * pairs.rows.reshape(1, 1, -1, 1)) & _WORD)
    column = _mixed((_COLUMN + pairs.columns) & _WORD)
    threshold = int(probability * (_WORD + 1))
    # compilers fuse the step with what comes before and after it
    if device.type == "cpu" and threshold <= _WORD and not torch.compiler.is_compiling() and extension.library() is not None:
        return torch.ops.attent.kept(row, column, threshold)
    return _mixed((row + column) & _WORD) >= threshold


@torch.library.custom_op("attent::kept", mutates_args=())
def _kept(row: Tensor, column: Tensor, threshold: int) -> Tensor:
    """The last step by the extension, of rows (B, H, Tq, 1) and columns (Tk,) hashed."""
    found = torch.empty(*row.shape[:-1], column.shape[0], dtype=torch.bool)
    if found.numel():
        words = (row.to(torch.int32).contiguous(), column.to(torch.int32).contiguous())
        extension.run("attent_kept", (*words, found), row.numel(), column.numel(), threshold)
    return found


@_kept.register_fake
def _(row: Tensor, column: Tensor, threshold: int) -> Tensor:
    return torch.empty(*row.shape[:-1], column.shape[0], dtype=torch.bool, device=row.device)
