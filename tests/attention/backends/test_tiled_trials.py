from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attent.attention import prepare
from attent.attention.backends import bands, tiled
from attent.attention.backends.bands import Band
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.attention.positions import RelativeBias
from attent.attention.scores import Additive, Gated

QUERY, KEY, VALUE = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 37, 4), torch.randn(2, 3, 37, 2)
LAYER = nn.Linear(4, 4)


def prepared(score: object) -> tuple[Call, bands.Lowered]:
    call, *tensors = prepare(QUERY, KEY, VALUE, score=score)  # pyright: ignore[reportArgumentType]
    return call, bands.lower_sides(call, *tensors)


@pytest.mark.parametrize(
    ("score", "numbers"),
    [
        (lambda query, key: query @ key.mT, 1),
        # what is made of the keys alone does not count
        (lambda query, key: query @ LAYER(key).tanh().exp().mT, 1),
        (lambda query, key: -(query[..., :, None, :] - key[..., None, :, :]).square().sum(-1), 4),
        (Gated(4, 4), 3),  # the gate, the score behind it, and their product's factors
        ("dot", None),
        (Additive(4, 4, 13), None),
    ],
    ids=["products", "a layer", "differences", "gated", "dot", "tanh"],
)
def test_how_many_numbers_a_pair_takes(score: object, numbers: int | None) -> None:
    actual = tiled.measure_numbers_per_pair(prepare(QUERY, KEY, VALUE, score=score))  # pyright: ignore[reportArgumentType]
    assert actual == numbers if numbers is None or actual is None else abs(actual - numbers) <= 1


def test_nothing_is_thrown_and_nothing_kept() -> None:
    before = torch.get_rng_state()
    tiled.measure_numbers_per_pair(prepare(QUERY, KEY, VALUE, score=lambda query, key: query @ key.mT + torch.rand(())))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.inference_mode():
        assert (
            tiled.measure_numbers_per_pair(prepare(QUERY, KEY, VALUE, score=lambda query, key: query @ key.mT)) is None
        )


def leaves_of(between: Callable[[LoweredSide, LoweredSide], Tensor]) -> list[Tensor] | None:
    call, lowered = prepared("dot")

    def tile(query: LoweredSide, key: LoweredSide, value: Tensor, band: Band) -> Tensor:
        return between(query, key).softmax(-1) @ value

    return tiled.captured_leaves(tile, call, lowered, Band(range(5), range(37)))


def test_the_leaves_that_a_score_uses() -> None:
    first, second = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    assert leaves_of(lambda query, key: query.features @ key.features.mT) == []
    leaves = leaves_of(lambda query, key: (query.features * first) @ (key.features * (first + second)).mT)
    assert leaves is not None
    assert {id(leaf) for leaf in leaves} == {id(first), id(second)}


def test_what_was_computed_before_or_by_chance_is_beyond_it() -> None:
    before = torch.randn(4, requires_grad=True).exp()
    assert leaves_of(lambda query, key: (query.features * before) @ key.features.mT) is None
    state = torch.get_rng_state()
    assert leaves_of(lambda query, key: (query.features @ key.features.mT) * torch.rand(())) is None
    assert torch.equal(torch.get_rng_state(), state)


def test_a_learnt_position_is_found() -> None:
    position = RelativeBias(3)
    call, *tensors = prepare(QUERY, KEY, VALUE, position=position)
    leaves = tiled.captured_leaves(
        lambda query, key, value, band: (
            call.score.score_lowered(query, key) + position.bias(call.pairs(*band.pairs_of(call)))
        ) @ value,
        call, bands.lower_sides(call, *tensors), Band(range(5), range(37)),
    )  # fmt: skip
    assert leaves is not None
    assert leaves[0] is position.table
