from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.masks import Causal, Window
from attent.errors import ArgumentError


def test_both_ends_are_included() -> None:
    assert Window(1, 2).draw(5) == "■■■··\n■■■■·\n·■■■■\n··■■■\n···■■"
    assert Window(0, 0).draw(3) == "■··\n·■·\n··■"
    # by position: the last of two queries stands on the last of five keys
    assert Window(1, 0).draw(2, 5) == "··■■·\n···■■"


def test_an_open_side_sees_all() -> None:
    assert Window(None, 0).draw(7) == Causal().draw(7)
    assert Window(None, None).draw(3) == "■■■\n■■■\n■■■"
    assert Window(0, None).draw(3) == "■■■\n·■■\n··■"


def test_keys_outside_do_not_matter() -> None:
    features = torch.randn(2, 11, 3)
    expected = attend(features[:, 3:6], features[:, 2:6], features[:, 2:6], mask=Window(1, 0))
    torch.testing.assert_close(attend(features, features, features, mask=Window(1, 0))[:, 3:6], expected)


def test_sides_are_not_negative() -> None:
    with pytest.raises(ArgumentError, match=r"^window's left must be ≥ 0 or None, got -1$"):
        Window(-1, 0)
    with pytest.raises(ArgumentError, match=r"^window's right must be ≥ 0 or None, got -2$"):
        Window(0, -2)
