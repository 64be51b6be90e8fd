from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention.scores import Additive, Concat


@pytest.mark.parametrize("heads", [None, 2])
def test_it_is_the_additive_score_without_a_bias(heads: int | None) -> None:
    concat, additive = Concat(3, 5, 7, heads), Additive(3, 5, 7, heads, bias=False)
    concat.load_state_dict({"weight": torch.cat((additive.query_weight, additive.key_weight), -2), "v": additive.v})
    query, key = torch.randn(11, 2, 13, 3), torch.randn(11, 2, 2, 5)
    torch.testing.assert_close(concat(query, key), additive(query, key))
    torch.testing.assert_close(concat.lower_query(query).features, additive.lower_query(query).features)
    torch.testing.assert_close(concat.lower_key(key).features, additive.lower_key(key).features)


def test_one_number_by_hand() -> None:
    score = Concat(1, 2, 1)
    score.load_state_dict({"weight": torch.tensor([[1.0], [2.0], [3.0]]), "v": torch.tensor([4.0])})
    # 4·tanh(1·½ + 2·1 + 3·(−½)) = 4·tanh 1 = 3.046377
    scores = score(torch.tensor([[[[0.5]]]]), torch.tensor([[[[1.0, -0.5]]]]))
    assert scores.item() == pytest.approx(3.046377, abs=1e-6)


def test_for_widths_and_its_start() -> None:
    score = Concat.for_widths(5, 11, 3)
    assert (score.widths, score.hidden, score.heads) == ((5, 11), 11, 3)
    assert score.weight.shape == (3, 16, 11)
    assert 0.2 < score.weight.abs().max() <= 0.25
    assert isinstance(score.v, nn.Parameter)
