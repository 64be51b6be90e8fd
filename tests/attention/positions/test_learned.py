from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.positions import Learned
from attent.errors import ShapeError


def test_the_row_of_each_position_is_added() -> None:
    position, features = Learned(3, 11), torch.randn(2, 5, 3)
    torch.testing.assert_close(position(features), features + position.table[:5])
    torch.testing.assert_close(position(features, 6), features + position.table[6:])
    output = position(features, torch.tensor([0, 4]))
    torch.testing.assert_close(output[1], features[1] + position.table[4:9])
    assert position.table.shape == (11, 3)


def test_one_number_by_hand() -> None:
    position = Learned(1, 3)
    position.load_state_dict({"table": torch.tensor([[10.0], [20.0], [30.0]])})
    # 1 + 20 and 2 + 30
    assert position(torch.tensor([[[1.0], [2.0]]]), 1).tolist() == [[[21.0], [32.0]]]


def test_only_the_rows_used_learn() -> None:
    position = Learned(3, 7)
    position(torch.randn(2, 3, 3), 2).sum().backward()
    assert position.table.grad.sum(-1).tolist() == [0.0, 0.0, 6.0, 6.0, 6.0, 0.0, 0.0]


def test_with_it_self_attention_knows_the_order() -> None:
    features, order, position = torch.randn(2, 5, 3), torch.tensor([3, 0, 4, 2, 1]), Learned(3, 5)
    first, second = position(features), position(features[:, order])
    assert not torch.allclose(attend(second, second, second), attend(first, first, first)[:, order], atol=1e-3)


def test_a_sequence_longer_than_the_table_is_said() -> None:
    position = Learned(3, 7)
    with pytest.raises(ShapeError, match=r"^learned positions end at 7 tokens, got a sequence of 8$"):
        position(torch.randn(2, 8, 3))
    with pytest.raises(ShapeError, match=r"^learned positions end at 7 tokens, got a sequence of 9$"):
        position(torch.randn(2, 5, 3), 4)
    with pytest.raises(ShapeError, match=r"^learned positions end at 7 tokens, got a sequence of 8$"):
        position(torch.randn(2, 5, 3), torch.tensor([0, 3]))
    assert repr(position) == "Learned(maximum=7, width=3)"
