from __future__ import annotations

import pytest
import torch

from attent.attention.scores import Cosine
from attent.errors import ArgumentError


def test_lengths_do_not_matter_and_scores_stay_between_the_bounds() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    scores = Cosine(0.5)(query, key)
    torch.testing.assert_close(Cosine(0.5)(3 * query, key * torch.rand(2, 3, 11, 1).add(0.1)), scores)
    assert scores.abs().max() <= 2.0
    torch.testing.assert_close(Cosine(0.5)(query, query).diagonal(0, -2, -1), torch.full((2, 3, 5), 2.0))


def test_a_vector_of_length_zero_has_cosine_zero_and_a_finite_gradient() -> None:
    query = torch.zeros(1, 1, 1, 3, requires_grad=True)
    scores = Cosine()(query, torch.randn(1, 1, 2, 3))
    scores.sum().backward()
    assert scores.tolist() == [[[[0.0, 0.0]]]]
    assert query.grad.isfinite().all()


def test_one_number_by_hand() -> None:
    # (3, 4) and (4, 3): 24 / (5·5) = 0.96, over τ = 0.1: 9.6
    scores = Cosine(0.1)(torch.tensor([[[[3.0, 4.0]]]]), torch.tensor([[[[4.0, 3.0]]]]))
    assert scores.item() == pytest.approx(9.6)


def test_the_temperature_is_positive() -> None:
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match=r"^temperature must be > 0, got"):
            Cosine(temperature)
    assert repr(Cosine(0.5)) == "Cosine(temperature=0.5)"
