from __future__ import annotations

import torch

from attent.attention import attend
from attent.attention.normalizers import Identity


def test_the_weights_are_the_scores() -> None:
    scores = torch.randn(2, 3, 5, 7)
    assert Identity()(scores) is scores
    allowed = torch.rand(2, 3, 5, 7) < 0.5
    assert torch.equal(Identity()(scores, allowed), scores * allowed)
    assert not Identity.is_distribution
    assert not Identity.shift_invariant


def test_with_the_dot_product_the_order_of_products_is_free() -> None:
    query, key, value = torch.randn(2, 5, 3).double(), torch.randn(2, 7, 3).double(), torch.randn(2, 7, 11).double()
    torch.testing.assert_close(attend(query, key, value, score="dot", normalizer="identity"), query @ (key.mT @ value))


def test_one_number_by_hand() -> None:
    s = torch.tensor([[1.0], [2.0]])
    # (ssᵀ)s: 1·1·1 + 1·2·2 = 5 and 2·1·1 + 2·2·2 = 10
    assert attend(s, s, s, score="dot", normalizer="linear").tolist() == [[5.0], [10.0]]
