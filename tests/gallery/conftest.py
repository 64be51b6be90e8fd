"""Readings with known weights, to test the gallery on."""

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
    """A function that makes a reading of words between [CLS] and [SEP], with weights (layers, H, T, T)."""
    return reading


@pytest.fixture
def habits() -> Reading:
    """A reading by one layer of three heads.

    They attend to the piece before, to the piece itself, and uniformly to all pieces.
    """
    back = torch.diag(torch.ones(4), -1)
    return reading(torch.stack([back, torch.eye(5), torch.full((5, 5), 0.2)])[None])
