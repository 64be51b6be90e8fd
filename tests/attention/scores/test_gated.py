from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from attent.attention import attend
from attent.attention.scores import Additive, Dot, Gated, Gaussian, General, ScaledDot
from attent.errors import ShapeError


def opened(score: Gated, to: float) -> Gated:
    """The gate forced to one number."""
    for weight in (score.query_weight, score.key_weight):
        nn.init.zeros_(weight)
    nn.init.constant_(score.bias, to)
    return score


@pytest.mark.parametrize(
    "inner",
    [Dot(), ScaledDot(), Gaussian(0.5), General(7, 7, heads=3), Additive(7, 7, 5)],
    ids=lambda part: type(part).__name__,
)
def test_with_the_gate_open_it_is_the_inner_score(inner) -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    torch.testing.assert_close(opened(Gated(7, 7, inner), 50.0)(query, key), inner(query, key))
    torch.testing.assert_close(opened(Gated(7, 7, inner), 0.0)(query, key), inner(query, key) / 2)
    assert opened(Gated(7, 7, inner), -200.0)(query, key).abs().max() < 1e-30


def test_the_gate_looks_at_query_and_key() -> None:
    score, query, key = Gated(3, 3), torch.randn(2, 7, 5, 3), torch.randn(2, 7, 11, 3)
    steps = score.steps(query, key)
    combined = torch.cat(
        (query[..., :, None, :].expand(2, 7, 5, 11, 3), key[..., None, :, :].expand(2, 7, 5, 11, 3)), -1
    )
    gate = torch.sigmoid(combined @ torch.cat((score.query_weight, score.key_weight)) + score.bias[0])[..., 0]
    torch.testing.assert_close(steps["gate"], gate)
    torch.testing.assert_close(steps["scores"], gate * steps["inner"])


def test_each_head_may_have_its_own_gate() -> None:
    own, query, key = Gated(3, 3, heads=2), torch.randn(5, 2, 7, 3), torch.randn(5, 2, 11, 3)
    nn.init.normal_(own.bias)
    for head in range(2):
        shared = Gated(3, 3)
        shared.load_state_dict({name: part[head] for name, part in own.state_dict().items()})
        torch.testing.assert_close(shared(query, key)[:, head], own(query, key)[:, head])
    assert Gated.for_widths(3, 3, 2).heads == 2
    assert Gated(3, 3, inner=General(3, 3, heads=5)).heads == 5
    assert Gated(3, 3, bias=False).bias is None
    assert Gated(3, 3, bias=False)(query, key).shape == (5, 2, 7, 11)


def test_one_number_by_hand() -> None:
    score = Gated(1, 1)
    score.load_state_dict(
        {"query_weight": torch.tensor([[1.0]]), "key_weight": torch.tensor([[2.0]]), "bias": torch.tensor([[-4.0]])}
    )
    # gate σ(1·1 + 2·2 − 4) = σ(1) = 0.731059, inner 1·2 = 2
    scores = score(torch.tensor([[[[1.0]]]]), torch.tensor([[[[2.0]]]]))
    assert scores.item() == pytest.approx(2 / (1 + math.exp(-1)))


def test_the_inner_score_must_fit_too() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 11)
    with pytest.raises(
        ShapeError, match=f"^{re.escape('Dot needs queries and keys of one width, got Dq = 3 and Dk = 11')}$"
    ):
        attend(query, key, key, score=Gated(3, 11))
    assert attend(query, key, key, score=Gated(3, 11, inner=General(3, 11))).shape == (2, 5, 11)
    assert Gated(3, 11, inner=Additive(3, 11, 13)).per_pair(3) == 13
    assert Gated(3, 3).per_pair(3) == 3
