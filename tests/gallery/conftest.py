"""What the gallery is tried on: a reading whose weights are known, and pictures kept in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from gallery.encoder import Reading


def reading(weights: Tensor, words: str = "a b c") -> Reading:
    return Reading(words, ("[CLS]", *words.split(), "[SEP]"), weights)


@pytest.fixture(name="reading")
def make_reading() -> Callable[..., Reading]:
    """A reading of some words, [CLS] and [SEP] about them, with given weights (layers, H, T, T)."""
    return reading


@pytest.fixture
def habits() -> Reading:
    """One layer of three heads: each row looks one piece back, at itself, and at all pieces alike."""
    back = torch.diag(torch.ones(4), -1)
    return reading(torch.stack([back, torch.eye(5), torch.full((5, 5), 0.2)])[None])
