from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attent.attention.capture.patching import DOORS, Ears
from attent.attention.capture.torch_calls import Heard


def test_nothing_is_left_behind() -> None:
    before = [getattr(door.home, door.name) for door in DOORS]
    ears = Ears(lambda heard: None)
    ears.place([])
    assert all(getattr(door.home, door.name) is not original for door, original in zip(DOORS, before, strict=True))
    ears.place([])
    ears.remove()
    ears.remove()
    assert all(getattr(door.home, door.name) is original for door, original in zip(DOORS, before, strict=True))


def test_a_door_imported_by_name_is_listened_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    original = F.scaled_dot_product_attention
    file = ModuleType("a_file_of_models")
    vars(file).update(sdpa=original)
    monkeypatch.setitem(sys.modules, "a_file_of_models", file)
    kind = type("Model", (nn.Module,), {"__module__": "a_file_of_models"})
    heard: list[Heard] = []
    ears = Ears(heard.append)
    ears.place([kind()])
    assert file.sdpa is F.scaled_dot_product_attention is not original
    query = torch.randn(2, 3, 4)
    assert torch.equal(file.sdpa(query, query, query), original(query, query, query))
    assert len(heard) == 1
    ears.remove()
    assert file.sdpa is original


def test_what_somebody_else_put_there_since_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "bmm", torch.bmm)
    ears = Ears(lambda heard: None)
    ears.place([])
    torch.bmm = other = lambda *tensors: tensors
    ears.remove()
    assert torch.bmm is other


def test_a_call_that_fails_is_not_heard() -> None:
    heard: list[Heard] = []
    ears = Ears(heard.append)
    ears.place([])
    try:
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.randn(2, 3, 5))
    finally:
        ears.remove()
    assert not heard


def test_a_door_that_a_module_keeps_is_listened_at_too() -> None:
    original = F.scaled_dot_product_attention
    mixer = type("Mixer", (nn.Module,), {})()
    mixer.function = original
    model = nn.Sequential(mixer)
    heard: list[Heard] = []
    ears = Ears(heard.append)
    ears.place(model.modules())
    query = torch.randn(2, 3, 4)
    assert torch.equal(mixer.function(query, query, query), original(query, query, query))
    assert len(heard) == 1
    ears.remove()
    assert mixer.function is original
