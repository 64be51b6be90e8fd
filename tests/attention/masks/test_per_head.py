from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.masks import Causal, Padding, PerHead, Table, Window
from attent.errors import ArgumentError, ShapeError


def test_each_head_attends_as_its_own_mask_says() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    masks = [Causal(), Padding(torch.tensor([4, 9])), Table(torch.rand(5, 11) < 0.5)]
    output = attend(query, key, key, mask=PerHead(masks))
    for head, mask in enumerate(masks):
        torch.testing.assert_close(output[:, head], attend(query[:, head], key[:, head], key[:, head], mask=mask))


@pytest.mark.parametrize("implementation", ["auto", "reference", "tiled", "sdpa", "dense"])
def test_a_head_of_no_mask_sees_everything(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    output = attend(query, key, key, mask=PerHead([Window(1, 1), None, None]), implementation=implementation)
    for head, mask in enumerate([Window(1, 1), None, None]):
        expected = attend(query[:, head], key[:, head], key[:, head], mask=mask, query_start=6)
        torch.testing.assert_close(output[:, head], expected)
    assert PerHead([Causal(), None]).draw(2, 3, head=1) == "■■■\n■■■"
    assert attend(query, key, key, mask=PerHead([None] * 3)).equal(
        attend(query, key, key, mask=PerHead([Window(None, None)] * 3))
    )


def test_what_is_no_mask_is_said() -> None:
    with pytest.raises(ArgumentError, match=r"^per_head needs a Mask or None for each head, got \['causal', None\]$"):
        PerHead(["causal", None])


def test_the_picture_is_of_one_head() -> None:
    mask = PerHead([Causal(), Window(0, 1)])
    assert mask.draw(3) == Causal().draw(3)
    assert mask.draw(3, head=1) == "■■·\n·■■\n··■"
    assert repr(mask) == "PerHead([Causal(), Window(left=0, right=1)])"
    assert str(mask).startswith(repr(mask) + "\n■·······\n")


def test_as_many_masks_as_heads_and_each_fits() -> None:
    with pytest.raises(ShapeError, match=r"^per_head needs a mask for each of 3 heads, got 2$"):
        PerHead([Causal(), Causal()]).check(2, 3, 5, 7)
    with pytest.raises(ShapeError, match=r"^mask must be \(Tq, Tk\) = \(5, 7\), got \(7, 5\)$"):
        PerHead([Causal(), Table(torch.ones(7, 5).bool())]).check(2, 2, 5, 7)
