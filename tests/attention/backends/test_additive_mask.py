from __future__ import annotations

import torch

from attent.attention.backends.additive_mask import added

INF = torch.inf


def test_nothing_hidden_adds_nothing() -> None:
    assert added(None, None, torch.float32) == (None, None)
    assert added(torch.ones(1, 1, 2, 3, dtype=torch.bool), None, torch.float32) == (None, None)


def test_a_mask_is_minus_infinity_and_a_row_that_sees_nothing_is_open() -> None:
    allowed = torch.tensor([[True, False], [False, False]])
    term, dead = added(allowed, None, torch.float64)
    assert term is not None
    assert dead is not None
    assert term.dtype == torch.float64
    assert term.tolist() == [[0.0, -INF], [0.0, 0.0]]
    assert dead.tolist() == [[False], [True]]


def test_a_bias_joins_it_and_its_infinities_are_the_masks() -> None:
    bias = torch.tensor([[1.0, 2.0], [-INF, 3.0]])
    term, dead = added(torch.tensor([[True, False], [False, True]]), bias, torch.float32)
    assert term is not None
    assert dead is None
    assert term.tolist() == [[1.0, -INF], [-INF, 3.0]]
    term, _ = added(None, torch.tensor([[1.0, 2.0]]), torch.float32)
    assert term is not None
    assert term.tolist() == [[1.0, 2.0]]
    # a row hidden by its bias alone
    term, dead = added(torch.tensor([[False, False], [True, True]]), torch.tensor([[-INF, -INF], [1.0, 2.0]]), torch.float32)
    assert term is not None
    assert dead is not None
    assert term.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert dead.tolist() == [[True], [False]]
