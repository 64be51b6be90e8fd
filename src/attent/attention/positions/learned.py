"""A learned vector for each position, added to the embeddings."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from attent.errors import ShapeError


class Learned(nn.Module):
    """Positions as rows of a learned table: x_p + P[p].

    Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", §3.1 (arXiv:1705.03122); compared with the sines
    in Vaswani et al. 2017, table 3 row E.

    Args:
        width: E, the model's width.
        maximum: the number of positions, in tokens.
    """

    aliases: ClassVar[tuple[str, ...]] = ("learnt",)
    # added to embeddings, before any attention
    added: ClassVar[bool] = True

    def __init__(self, width: int, maximum: int) -> None:
        super().__init__()
        self.maximum_length = maximum
        self.table = nn.Parameter(torch.empty(maximum, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, features: Tensor, start: int | Tensor = 0) -> Tensor:
        """Add the rows of positions start, start + 1, … to features (B, T, E).

        Args:
            features: (B, T, E).
            start: the position of the first row, one number or (B,).

        Raises:
            ShapeError: the sequence is longer than the table.
        """
        length, maximum = features.shape[-2], self.table.shape[0]
        largest = self._largest(start)
        if largest is not None and largest + length > maximum:
            raise ShapeError(f"learned positions end at {maximum} tokens, got a sequence of {largest + length}")
        if isinstance(start, int):
            return features + self.table[start : start + length].to(features.dtype)
        positions = torch.arange(length, device=features.device) + start[:, None]
        return features + self.table[positions].to(features.dtype)

    @staticmethod
    def _largest(start: int | Tensor) -> int | None:
        if isinstance(start, int):
            return start
        # reading the number would stall a GPU, and break a compiled graph
        return (
            int(start.max())
            if start.device.type == "cpu" and start.numel() and not torch.compiler.is_compiling()
            else None
        )

    def extra_repr(self) -> str:
        """Return the size of the table."""
        return f"maximum={self.table.shape[0]}, width={self.table.shape[1]}"
