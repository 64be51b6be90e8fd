"""When an implementation that could serve is left to a quicker one: the one table of measured thresholds.

`auto` reads it; an implementation asked for by name does not.
"""

from __future__ import annotations

from attent.attention.call import Call
from attent.attention.kernels import rows


def slower(name: str, call: Call) -> str | None:
    """Why `auto` passes an implementation by at these shapes; None if it does not."""
    if name == "formula" and rows.per_row(call) * call.queries > rows.TILE:
        return "it would hold the whole table of scores, which tiles do not"
    return None
