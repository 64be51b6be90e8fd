from __future__ import annotations

import torch
from torch import Tensor

from attent.ops.pair_functions import for_all_pairs

B, H, TQ, TK = (torch.arange(size) for size in (2, 3, 4, 5))


def test_a_function_of_scores_that_looks_up_tables() -> None:
    scores, table, list_of_heads = torch.randn(2, 3, 4, 5), torch.randn(3, 9), torch.randn(3)

    def look_up(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score * list_of_heads[h] + table[h, i - j + 4]

    right = scores * list_of_heads[:, None, None] + table[:, TQ[:, None] - TK + 4]
    assert torch.equal(for_all_pairs(look_up, B, H, TQ, TK, scores), right)


def test_what_is_the_same_for_every_head_is_computed_once() -> None:
    assert for_all_pairs(lambda b, h, i, j: i >= j, B, H, TQ, TK).stride()[:2] == (0, 0)


def test_nothing_of_no_keys() -> None:
    assert for_all_pairs(lambda b, h, i, j: i >= j, B, H, TQ, TK[:0]).shape == (2, 3, 4, 0)
    scores = torch.randn(2, 3, 4, 0)
    assert for_all_pairs(lambda s, b, h, i, j: s + i, B, H, TQ, TK[:0], scores).shape == scores.shape
