from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.arguments import prepare
from attent.attention.capture.activations import ACTIVATIONS, ActivationRecorder, at_position, mixed_contexts
from attent.errors import ArgumentError


def sides() -> list[Tensor]:
    """Queries of four heads, and keys and values that two of them share, (2, H, 5, 3)."""
    return [torch.randn(2, heads, 5, 3) for heads in (4, 2, 2)]


def attended(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    key, value = (side.repeat_interleave(2, 1) for side in (key, value))
    scores = (query @ key.mT / 3**0.5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    return scores.softmax(-1), value


@pytest.mark.parametrize("position", [None, 2])
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "output"])
def test_contexts_take_an_activation_from_another_run(activation: Any, position: int | None) -> None:
    own, source = sides(), sides()
    mixed = mixed_contexts(activation, *(prepare(*run, mask="causal") for run in (own, source)), position)
    if activation == "weights":
        expected = attended(*source)[0] @ attended(*own)[1]
    else:
        index = ("queries", "keys", "values").index(activation)
        taken = [side.clone() for side in own]
        rows = slice(None) if position is None or activation == "queries" else slice(position, position + 1)
        taken[index][:, :, rows] = source[index][:, :, rows]
        weights, value = attended(*taken)
        expected = weights @ value
    torch.testing.assert_close(mixed, expected)
    first, second = torch.zeros(1, 1, 3, 2), torch.ones(1, 1, 3, 2)
    assert at_position(first, second, 1)[0, 0, :, 0].tolist() == [0.0, 1.0, 0.0]


def test_a_module_that_attends_twice_is_refused() -> None:
    module, features = nn.MultiheadAttention(6, 2, batch_first=True).eval(), torch.randn(1, 4, 6)
    with torch.no_grad(), ActivationRecorder(module, has_calls=True) as recorder:
        module(features, features, features)
        assert recorder.contexts[""].shape == (1, 2, 4, 3) and recorder.calls[""].value.shape == (1, 2, 4, 3)
        with pytest.raises(ArgumentError, match="more than once"):
            module(features, features, features)
