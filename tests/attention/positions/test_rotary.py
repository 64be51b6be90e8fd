from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.attention.positions import Rotary
from attent.attention.scores import Dot
from attent.errors import ShapeError


@pytest.mark.parametrize("halves", [False, True])
def test_products_depend_on_distance_alone(halves: bool) -> None:
    rotary, query, key = (
        Rotary(interleaved=not halves),
        torch.randn(1, 1, 1, 6).double(),
        torch.randn(1, 1, 1, 6).double(),
    )

    def score(p: int, j: int) -> float:
        return Dot()(rotary.rotate(query, torch.tensor([[p]])), rotary.rotate(key, torch.tensor([[j]]))).item()

    assert score(3, 5) == pytest.approx(score(13, 15), abs=1e-5)
    assert score(3, 5) == pytest.approx(score(0, 2), abs=1e-5)
    assert score(5, 3) == pytest.approx(score(7, 5), abs=1e-5)
    assert abs(score(3, 5) - score(3, 6)) > 1e-3
    assert abs(score(3, 5) - score(5, 3)) > 1e-3


@pytest.mark.parametrize("halves", [False, True])
def test_lengths_stay_and_position_zero_turns_nothing(halves: bool) -> None:
    features = torch.randn(2, 3, 7, 4)
    rotated = Rotary(interleaved=not halves).rotate(features, torch.arange(7)[None])
    torch.testing.assert_close(rotated.norm(dim=-1), features.norm(dim=-1))
    assert torch.equal(rotated[:, :, 0], features[:, :, 0])
    assert not torch.isclose(rotated[:, :, 1:], features[:, :, 1:]).all(-1).any()


def test_one_number_by_hand() -> None:
    # base 100, width 4: angles p·1 and p·100^{−1/2} = p/10. At p = 2 the pair (1, 0) turns to (cos 2, sin 2),
    # the pair (0, 1) to (−sin 0.2, cos 0.2)
    features, positions = torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]]), torch.tensor([[2]])
    rotated = [math.cos(2), math.sin(2), -math.sin(0.2), math.cos(0.2)]
    torch.testing.assert_close(Rotary(100.0).rotate(features, positions).flatten(), torch.tensor(rotated))
    # in halves the pairs are features 0 and 2, 1 and 3: (1, 0) and (0, 1) once more, laid out otherwise
    actual = Rotary(100.0, interleaved=False).rotate(torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]]), positions).flatten()
    torch.testing.assert_close(actual, torch.tensor([rotated[0], rotated[2], rotated[1], rotated[3]]))


def test_it_is_exact_in_float64() -> None:
    rotated = Rotary(interleaved=False).rotate(torch.eye(4).double()[None, None], torch.tensor([[11, 12, 13, 14]]))[
        0, 0
    ]
    for row, column, angle in ((0, 0, 11), (0, 2, 11), (1, 1, 12 / 100), (1, 3, 12 / 100)):
        assert rotated[row, column].item() == pytest.approx(
            math.cos(angle) if row == column else math.sin(angle), rel=1e-14
        )


def test_each_sequence_has_its_own_positions() -> None:
    rotary, features, positions = Rotary(), torch.randn(2, 3, 5, 4), torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    rotated = rotary.rotate(features, positions)
    for position in range(2):
        torch.testing.assert_close(
            rotated[position : position + 1],
            rotary.rotate(features[position : position + 1], positions[position : position + 1]),
        )


def test_where_both_start_does_not_matter() -> None:
    features = torch.randn(2, 7, 4).double()
    near = attend(features[:, 3:5], features[:, 2:6], features[:, 2:6], position="rotary", query_start=1)
    rotary = Rotary()
    query, key = (
        rotary.rotate(part[:, None], positions[None])
        for part, positions in ((features[:, 3:5], torch.arange(3, 5)), (features[:, 2:6], torch.arange(2, 6)))
    )
    torch.testing.assert_close(near, attend(query[:, 0], key[:, 0], features[:, 2:6]), rtol=1e-6, atol=1e-6)


def test_types_and_widths() -> None:
    assert Rotary().rotate(torch.randn(1, 1, 3, 4).bfloat16(), torch.arange(3)[None]).dtype == torch.bfloat16
    with pytest.raises(ShapeError, match=r"^rotary rotates pairs of features, so the width must be even, got 5$"):
        Rotary().check(3, 5)
    assert repr(Rotary(500.0)) == "Rotary(base=500.0, interleaved=True)"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_with_gradients_the_same_turn(dtype: torch.dtype, transposed: bool) -> None:
    features = (
        torch.randn(2, 5, 3, 6, dtype=dtype).transpose(1, 2) if transposed else torch.randn(2, 3, 5, 6, dtype=dtype)
    )
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    leaf = features.detach().requires_grad_()
    rotated, rotary = Rotary().rotate(leaf, positions), Rotary()
    assert rotated.dtype == dtype
    torch.testing.assert_close(rotated.detach(), rotary.rotate(features, positions))
    # turning back is the gradient
    up = torch.randn(2, 3, 5, 6, dtype=dtype)
    (gradient,) = torch.autograd.grad(rotated, leaf, up)
    torch.testing.assert_close(gradient, rotary.rotate(up, -positions))


LAYOUTS: dict[str, Callable[[Callable[..., Tensor]], Tensor]] = {
    "transposed": lambda randn: randn(2, 3, 6, 5).mT,
    "sliced rows": lambda randn: randn(2, 3, 5, 7)[..., :6],
    "odd storage offset": lambda randn: randn(2 * 3 * 5 * 6 + 1)[1:].view(2, 3, 5, 6),
    "every second feature": lambda randn: randn(2, 3, 5, 12)[..., ::2],
    "expanded": lambda randn: randn(1, 1, 5, 6).expand(2, 3, 5, 6),
    "no features": lambda randn: randn(2, 3, 5, 0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_gradients(layout: str, dtype: torch.dtype) -> None:
    features = LAYOUTS[layout](partial(torch.randn, dtype=dtype))
    leaf, plain = features.detach().requires_grad_(), features.contiguous().clone().requires_grad_()
    assert leaf.stride() == features.stride()
    actual, expected = (attend(part, part, part, position="rotary") for part in (leaf, plain))
    torch.testing.assert_close(actual, expected)
    up = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(actual, leaf, up)[0], torch.autograd.grad(expected, plain, up)[0])
