"""When an implementation that could serve is left to a quicker one: the one table of measured thresholds.

`auto` reads it; an implementation asked for by name does not.
"""

from __future__ import annotations

from attent.attention.call import Call
from attent.attention.kernels import rows

# PyTorch's CPU kernel takes 3 to 10 times as long for gradients in 16 bits as in 32 below so many keys; measured with torch 2.13
# on 2 cores with AVX-512: 30 ms against 3 at 14 keys, 10.6 against 2.4 at 64, 17.7 against 20.2 at 256, 45 against 75 at 2048.
SIXTEEN_BIT_GRADIENTS = 256
# Up to so many pairs of a head plain products have their gradients sooner than PyTorch's CPU kernel.
SHORT = 64 * 64
# PyTorch's attention computes every pair, or every other one for a causal mask alone. Tiles skip those that a mask hides, and so win
# where it leaves less than this share, on a CPU and from so many pairs on.
SPARSE, MANY = 0.25, 2**20
# Exponentials of every key repay themselves from so many rows on: at 1 query and 15 keys of 512 features, 136 sequences, the formula took
# 22 ms with gradients and the fused form 31, at 4 queries 58 and 37.
FEW = 4


def slower(name: str, call: Call) -> str | None:
    """Why `auto` passes an implementation by at these shapes; None if it does not."""
    if name == "formula" and rows.per_row(call) * call.queries > rows.TILE:
        return "it would hold the whole table of scores, which tiles do not"
    if name == "tanh" and call.queries < FEW:
        return f"fewer than {FEW} queries do not repay its exponentials of every key"
    if name == "sdpa" and call.mask is not None and call.queries * call.keys >= MANY and rows.share_seen(call) < SPARSE:
        return "it would compute the pairs that the mask hides, which tiles skip"
    return None
