"""Nested tensors, sequences without padding, with the padding put back."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Mask
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table


def opened(features: Tensor, tokens: int | None = None) -> tuple[Tensor, Tensor]:
    """Sequences (…, T_b, D) side by side, filled up with zeros to (B, …, tokens, D), and their lengths (B,).

    Args:
        features: a nested tensor.
        tokens: the length to fill up to; the longest sequence's if not given.
    """
    sequences = features.unbind()
    lengths = torch.tensor([sequence.shape[-2] for sequence in sequences], device=features.device)
    longest = tokens or int(lengths.max())
    return torch.stack([F.pad(sequence, (0, 0, 0, longest - sequence.shape[-2])) for sequence in sequences]), lengths


def within(queries: Tensor, longest: int, keys: Tensor) -> Mask:
    """Queries and keys up to their lengths, both (B,); what is padding looks at nothing and is not looked at."""
    rows = torch.arange(longest, device=queries.device) < queries[:, None]  # (B, Tq)
    return Table(rows[:, None, :, None]) & Padding(keys)
