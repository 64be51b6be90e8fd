from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention.scores import Additive


def test_with_one_hidden_unit_and_no_v_it_is_the_tanh_of_w_times_both() -> None:
    score, query, key = Additive(3, 5, hidden=1, v=False), torch.randn(2, 7, 11, 3), torch.randn(2, 7, 13, 5)
    bias = nn.init.normal_(score.bias)
    w = torch.cat((score.query_weight, score.key_weight))[:, 0]
    combined = torch.cat(
        (query[..., :, None, :].expand(2, 7, 11, 13, 3), key[..., None, :, :].expand(2, 7, 11, 13, 5)), -1
    )
    torch.testing.assert_close(score(query, key), torch.tanh(combined @ w + bias))
    assert [name for name, _ in score.named_parameters()] == ["query_weight", "key_weight", "bias"]


def test_the_bias_is_in_the_query_half() -> None:
    score, query, key = Additive(3, 5, 2), torch.randn(1, 1, 7, 3), torch.randn(1, 1, 11, 5)
    before = score(query, key)
    nn.init.constant_(score.bias, 0.5)
    assert not torch.allclose(score(query, key), before)
    torch.testing.assert_close(score.lower_query(query).features, query @ score.query_weight + 0.5)
    torch.testing.assert_close(score.lower_key(key).features, key @ score.key_weight)
    assert Additive(3, 5, 2, bias=False).bias is None


def test_each_head_may_have_its_own_parameters() -> None:
    own, query, key = Additive(3, 5, 7, heads=2), torch.randn(3, 2, 11, 3), torch.randn(3, 2, 13, 5)
    nn.init.normal_(own.bias)
    scores = own(query, key)
    for head in range(2):
        shared = Additive(3, 5, 7)
        shared.load_state_dict({name: part[head] for name, part in own.state_dict().items()})
        torch.testing.assert_close(shared(query, key)[:, head], scores[:, head])


def test_one_number_by_hand() -> None:
    score = Additive(1, 1, 2)
    numbers = {"query_weight": [[1.0, 2.0]], "key_weight": [[0.5, -1.0]], "bias": [0.5, 0.0], "v": [3.0, -1.0]}
    score.load_state_dict({name: torch.tensor(value) for name, value in numbers.items()})
    # q = ½, k = 1: tanh(½ + ½ + ½) = 0.905148 and tanh(1 − 1) = 0; 3·0.905148 − 1·0 = 2.715445
    steps = score.steps(torch.tensor([[[[0.5]]]]), torch.tensor([[[[1.0]]]]))
    assert steps["scores"].item() == pytest.approx(2.715445, abs=1e-6)
    assert steps["query_half"].flatten().tolist() == [1.0, 1.0]
    assert steps["key_half"].flatten().tolist() == [0.5, -1.0]
    assert steps["hidden"].shape == (1, 1, 1, 1, 2)


def test_for_widths() -> None:
    score = Additive.for_widths(3, 5, 2)
    assert (score.widths, score.hidden, score.heads) == ((3, 5), 5, 2)
    assert score.v.shape == (2, 5)
    assert score.per_pair(3) == 5
