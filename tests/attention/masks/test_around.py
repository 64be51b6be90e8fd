from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.masks import Around, Window
from attent.errors import ArgumentError, ShapeError


def test_both_ends_are_included_and_what_lies_outside_is_ignored() -> None:
    assert Around(torch.tensor([[0, 3, 9]]), 1).draw(3, 6) == "■■····\n··■■■·\n······"
    assert Around(torch.tensor([[0.5, 3.0, 4.9]]), 1).draw(3, 6) == "■■····\n··■■■·\n····■■"


def test_about_the_queries_own_places_it_is_a_window() -> None:
    assert Around(torch.arange(7)[None], 2).draw(7) == Window(2, 2).draw(7)


def test_keys_outside_do_not_matter() -> None:
    features = torch.randn(2, 11, 3)
    centres = torch.tensor([[3.2], [5.0]])
    output = attend(features[:, :1], features, features, mask=Around(centres, 1))
    for index, keys in enumerate((slice(3, 5), slice(4, 7))):
        expected = attend(features[index, :1], features[index, keys], features[index, keys])
        torch.testing.assert_close(output[index], expected)


def test_what_it_takes() -> None:
    with pytest.raises(ArgumentError, match=r"^distance must be ≥ 0, got -1$"):
        Around(torch.zeros(1, 2), -1)
    with pytest.raises(ShapeError, match=r"^centres must be \(B\|1, Tq\), got \(3,\)$"):
        Around(torch.zeros(3), 1)
    query = torch.randn(2, 5, 3)
    with pytest.raises(ShapeError, match=r"^centres must be \(B\|1, Tq\) = \(2, 5\), got \(1, 4\)$"):
        attend(query, query, query, mask=Around(torch.zeros(1, 4), 1))
