from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention.capture.snapshot import hold, keep, rewritten
from attent.errors import StaleMapError


def shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_what_was_just_computed_is_not_copied() -> None:
    whole = torch.randn(2, 5, 9, requires_grad=True) * 2
    for part in (whole, *whole.chunk(3, -1)):
        kept = keep(part)
        assert shares(kept.seen(), part)
        assert not kept.seen().requires_grad


@pytest.mark.parametrize("what", ["written", "buffer", "parameter", "inference"])
def test_what_may_be_written_over_is_copied(what: str) -> None:
    if what == "written":
        tensor = torch.zeros(3).fill_(2.0)
    elif what == "buffer":
        tensor = torch.zeros(2, 40, 3)[:, :5]
    elif what == "parameter":
        with torch.no_grad():
            tensor = nn.Parameter(torch.zeros(2, 3)).view(3, 2)
    else:
        with torch.inference_mode():
            tensor = torch.zeros(3) + 1
    expected = tensor.clone()
    assert rewritten(tensor)
    kept = keep(tensor)
    with torch.inference_mode():
        tensor.add_(1.0)
    assert torch.equal(kept.seen(), expected)


def test_what_has_no_graph_is_held_as_it_is() -> None:
    tensor = torch.randn(3) + 1
    assert keep(tensor).seen() is tensor


def test_a_change_in_place_is_noticed() -> None:
    tensor, parameter = torch.zeros(3) + 1, nn.Parameter(torch.zeros(3))
    kept, held = keep(tensor), hold(parameter)
    assert shares(held.seen(), parameter)
    tensor.add_(1.0)
    nn.init.ones_(parameter)
    for each in (kept, held):
        with pytest.raises(StaleMapError, match="changed in place after the call"):
            each.seen()
