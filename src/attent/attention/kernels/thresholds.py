"""When an implementation that could serve is left to a quicker one: the one table of measured thresholds.

`auto` reads it; an implementation asked for by name does not.
"""

from __future__ import annotations

from attent.attention.call import Call
from attent.attention.kernels import rows

# PyTorch's CPU kernel takes 3 to 10 times as long for gradients in 16 bits as in 32 below so many keys; measured with torch 2.13
# on 2 cores with AVX-512: 30 ms against 3 at 14 keys, 10.6 against 2.4 at 64, 17.7 against 20.2 at 256, 45 against 75 at 2048.
SIXTEEN_BIT_GRADIENTS = 256


def slower(name: str, call: Call) -> str | None:
    """Why `auto` passes an implementation by at these shapes; None if it does not."""
    if name == "formula" and rows.per_row(call) * call.queries > rows.TILE:
        return "it would hold the whole table of scores, which tiles do not"
    return None
