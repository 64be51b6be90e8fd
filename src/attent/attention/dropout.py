"""Which weights dropout keeps: a function of (seed, b, h, i, j), so that every implementation and every recomputation agree.

The bits are those of a counter run through the integer hash "lowbias32" (Wellons 2018): two rounds of multiply and
xor-shift, computed for the row and the column by themselves and once more for their sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attent.attention.parts import Pairs

_WORD = 0xFFFFFFFF


def _mixed(bits: Tensor) -> Tensor:
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
        seed: a whole number, or a tensor that holds one; its lower 32 bits count. It is hashed before the sequences are
            counted from it: seeds in a row must not give neighbours in a batch each other's masks.
    """
    device = pairs.columns.device
    start = _mixed(torch.as_tensor(seed & _WORD, device=device).reshape(1))
    sequences = torch.arange(batch, device=device).reshape(-1, 1, 1, 1)
    heads = torch.arange(pairs.heads, device=device).reshape(1, -1, 1, 1)
    row = _mixed((start + sequences) & _WORD)
    row = _mixed((row + heads) & _WORD)
    row = _mixed((row + pairs.rows.reshape(1, 1, -1, 1)) & _WORD)
    column = _mixed((pairs.columns + 0x5BD1E995) & _WORD)
    return _mixed((row + column) & _WORD) >= int(probability * (_WORD + 1))
