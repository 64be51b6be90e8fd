"""What both kinds of model promise of their units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attent.models.model import EncoderDecoder

OfUnits = Callable[[EncoderDecoder[Any], torch.Tensor, torch.Tensor, torch.Tensor], None]


@pytest.fixture
def weights_are_needed_within() -> OfUnits:
    """Encodes and decodes while the weights of every unit are there only as long as that unit is called."""

    def check(model: EncoderDecoder[Any], source: torch.Tensor, lengths: torch.Tensor, tokens: torch.Tensor) -> None:
        whole = model.decode(model.encode(source, lengths), tokens)
        kept: dict[nn.Module, list[torch.Tensor]] = {}

        def leave(unit: nn.Module, *_: Any) -> None:
            kept[unit] = [weight.clone() for weight in unit.parameters()]
            for weight in unit.parameters():
                weight.fill_(torch.nan)

        def enter(unit: nn.Module, *_: Any) -> None:
            for weight, value in zip(unit.parameters(), kept[unit], strict=True):
                weight.copy_(value)

        assert model.units
        for unit in model.units:
            leave(unit)
            unit.register_forward_pre_hook(enter)
            unit.register_forward_hook(leave)
        assert model.decode(model.encode(source, lengths), tokens).equal(whole)

    return check
