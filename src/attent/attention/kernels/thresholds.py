"""When an implementation that could serve is left to a quicker one: the one table of measured thresholds.

`auto` reads it; an implementation asked for by name does not.
"""

from __future__ import annotations

from attent.attention.call import Call
from attent.attention.kernels import bands, rows

# PyTorch's CPU kernel takes 3 to 10 times as long for gradients in 16 bits as in 32 below so many keys; measured with torch 2.13
# on 2 cores with AVX-512: 30 ms against 3 at 14 keys, 10.6 against 2.4 at 64, 17.7 against 20.2 at 256, 45 against 75 at 2048.
SIXTEEN_BIT_GRADIENTS = 256
# Up to so many pairs of a head plain products have their gradients sooner than PyTorch's CPU kernel.
SHORT = 64 * 64
# PyTorch's attention computes every pair, or every other one for a causal mask alone. Band by band it skips those that a mask hides,
# which repays the calls where they leave less than this share of the pairs, on a CPU and from so many pairs of all heads on.
SPARSE, MANY = 0.5, 2**20
# Exponentials of every key repay themselves from so many rows on: at 1 query and 15 keys of 512 features, 136 sequences, the formula took
# 22 ms with gradients and the fused form 31, at 4 queries 58 and 37.
FEW = 4


def slower(name: str, call: Call) -> str | None:
    """Why `auto` passes an implementation by at these shapes; None if it does not."""
    if name == "formula" and rows.per_row(call) * call.queries > rows.WHOLE * rows.TILE:
        return "it would hold the whole table of scores, which tiles do not"
    if name == "tanh" and call.queries < FEW:
        return f"fewer than {FEW} queries do not repay its exponentials of every key"
    if name == "sdpa" and call.bias is not None and call.bias.requires_grad and bands.sparse(call, SPARSE, MANY) is not None:
        return "the bias's gradient would have it compute the pairs that the mask hides, which tiles skip"
    return None
