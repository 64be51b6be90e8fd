"""A check of the units of an encoder-decoder."""

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
    """A check that a model encodes and decodes if each unit's weights exist only while that unit runs."""

    def check(model: EncoderDecoder[Any], source: torch.Tensor, lengths: torch.Tensor, tokens: torch.Tensor) -> None:
        whole = model.decode(model.encode(source, lengths), tokens)
        weights_by_unit: dict[nn.Module, list[torch.Tensor]] = {}

        def leave(unit: nn.Module, *_: Any) -> None:
            weights_by_unit[unit] = [weight.clone() for weight in unit.parameters()]
            for weight in unit.parameters():
                weight.fill_(torch.nan)

        def enter(unit: nn.Module, *_: Any) -> None:
            for weight, value in zip(unit.parameters(), weights_by_unit[unit], strict=True):
                weight.copy_(value)

        assert model.units
        for unit in model.units:
            leave(unit)
            unit.register_forward_pre_hook(enter)
            unit.register_forward_hook(leave)
        assert model.decode(model.encode(source, lengths), tokens).equal(whole)

    return check
