"""Local attention: a recurrent decoder that looks at a window of the source alone."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from attent.attention.masks import Around
from attent.attention.weightings import GaussianWindow


class Local(nn.Module):
    """Where each query looks: a window [p_t − D, p_t + D], outside of which it sees nothing.

        p_t = t ("m"),  or p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)) ("p")

    With "p" the weights are then multiplied by exp(−(s − p_t)² / 2σ²), σ = D/2, and not normalised again. S is the length of the
    source without padding; places and steps are counted from 0. A step of "m" that lies more than D behind the source's end sees
    nothing. Source: Luong et al. (2015), §3.2, equations 9 and 10, arXiv 1508.04025.

    Args:
        kind: monotonic ("m") or predictive ("p") alignment.
        distance: D, in tokens.
        query_width: features of the states h_t.
    """

    def __init__(self, kind: Literal["m", "p"], distance: int, query_width: int) -> None:
        super().__init__()
        self.kind, self.distance = kind, distance
        if kind == "p":
            self.hidden = nn.Linear(query_width, query_width, bias=False)
            self.v = nn.Linear(query_width, 1, bias=False)
            for layer in (self.hidden, self.v):
                nn.init.xavier_uniform_(layer.weight)

    def centres(self, queries: Tensor, lengths: Tensor, steps: Tensor) -> Tensor:
        """p_t of queries (B, T, query_width) over sources of lengths (B,), (B, T) in tokens, the steps (B, T) being known."""
        if self.kind == "m":
            return steps
        # a place among many is not to be rounded to 16 bits
        with torch.autocast(queries.device.type, enabled=False):
            share = torch.sigmoid(self.v(torch.tanh(self.hidden(queries.to(self.v.weight.dtype)))))  # (B, T, 1)
        return lengths[:, None] * share[..., 0]

    def forward(self, queries: Tensor, lengths: Tensor, steps: Tensor) -> tuple[Around, GaussianWindow | None]:
        """Which keys these queries see, and what their weights are multiplied by."""
        centres = self.centres(queries, lengths, steps)
        return Around(centres, self.distance), GaussianWindow(centres, self.distance / 2) if self.kind == "p" else None

    def extra_repr(self) -> str:
        """The kind and D."""
        return f"kind={self.kind!r}, distance={self.distance}"
