"""Masks as terms that are added to scores, which takes a tenth of the time of filling in on a CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Added(NamedTuple):
    """What is added to some scores, and which of their rows see nothing (…, rows, 1); None for nothing, or for no row."""

    term: Tensor | None
    dead: Tensor | None


def added(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Added:
    """A mask and a bias in one term of this type: −∞ where a pair may not attend.

    A row that may see nothing looks at everything, and is to be set to zero afterwards.
    """
    finite = None if bias is None else bias.to(dtype).masked_fill(bias == -torch.inf, 0.0)
    if allowed is None or bool(allowed.all()):
        return Added(finite, None)
    alive = allowed.any(-1, keepdim=True)
    dead = None if bool(alive.all()) else ~alive
    hidden = ~allowed if dead is None else ~allowed & alive
    if finite is None:
        return Added(torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf), dead)
    return Added(finite.masked_fill(hidden, -torch.inf), dead)
