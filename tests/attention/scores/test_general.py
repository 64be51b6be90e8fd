from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention.scores import Dot, General


def test_with_the_identity_it_is_the_dot_product() -> None:
    score, query, key = General(7, 7), torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    assert not torch.allclose(score(query, key), Dot()(query, key))
    nn.init.eye_(score.weight)
    torch.testing.assert_close(score(query, key), Dot()(query, key))


def test_each_head_may_have_its_own_weights() -> None:
    own, query, key = General(5, 3, heads=2), torch.randn(7, 2, 11, 5), torch.randn(7, 2, 13, 3)
    scores = own(query, key)
    assert scores.shape == (7, 2, 11, 13)
    for head in range(2):
        shared = General(5, 3)
        shared.load_state_dict({"weight": own.weight[head]})
        torch.testing.assert_close(shared(query, key)[:, head], scores[:, head])


def test_one_number_by_hand() -> None:
    score = General(2, 1)
    score.weight = nn.Parameter(torch.tensor([[3.0], [4.0]]))
    # (1·3 + 2·4)·5 = 55
    assert score(torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[5.0]]]])).item() == 55.0


@pytest.mark.parametrize("heads", [None, 3])
def test_it_starts_within_the_bound_of_its_width(heads: int | None) -> None:
    score = General(16, 5, heads)
    assert score.weight.shape == ((16, 5) if heads is None else (3, 16, 5))
    assert 0.15 < score.weight.abs().max() <= 0.25
    assert repr(score) == ("General()" if heads is None else "General(heads=3)")
    assert General.for_widths(16, 5, 3).heads == 3


def test_a_scale_multiplies_every_score() -> None:
    score, plain = General(7, 5, scale=0.25), General(7, 5)
    plain.load_state_dict(score.state_dict())
    query, key = torch.randn(2, 3, 4, 7), torch.randn(2, 3, 6, 5)
    torch.testing.assert_close(score(query, key), plain(query, key) / 4)
    torch.testing.assert_close(score.score_lowered(score.lower_query(query), score.lower_key(key)), score(query, key))
    assert repr(score) == "General(scale=0.25)"
