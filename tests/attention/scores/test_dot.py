from __future__ import annotations

import torch

from attent.attention.scores import Dot


def test_it_is_linear_in_each_side() -> None:
    query, second, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    score = Dot()
    torch.testing.assert_close(score(2 * query + second, key), 2 * score(query, key) + score(second, key))
    torch.testing.assert_close(score(query, key), score(key, query).mT)


def test_one_number_by_hand() -> None:
    # 1·4 + 2·5 + 3·(−6) = −4
    assert Dot()(torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[[[4.0, 5.0, -6.0]]]])).item() == -4.0
