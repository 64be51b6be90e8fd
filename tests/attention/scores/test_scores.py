"""Each score but the Gaussian: its defining property, and one number worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend
from attent.attention.base import Score
from attent.attention.call import lower_key
from attent.attention.scores import Additive, Concat, Cosine, Dot, Gated, Gaussian, General, Location, ScaledDot
from attent.errors import ArgumentError, MissingArgumentError, ShapeError


def with_numbers(score: nn.Module, **numbers: list[Any]) -> Any:
    score.load_state_dict({name: torch.tensor(value) for name, value in numbers.items()})
    return score


ADDITIVE = {"query_weight": [[1.0, 2.0]], "key_weight": [[0.5, -1.0]], "bias": [0.5, 0.0], "v": [3.0, -1.0]}


@pytest.mark.parametrize(
    ("score", "query", "keys", "expected"),
    [
        # q = ½, k = 1: tanh(½ + ½ + ½) = 0.905148 and tanh(1 − 1) = 0; 3·0.905148 − 1·0 = 2.715445
        (with_numbers(Additive(1, 1, 2), **ADDITIVE), [0.5], [[1.0]], [2.715445]),
        # 4·tanh(1·½ + 2·1 + 3·(−½)) = 4·tanh 1 = 3.046377
        (with_numbers(Concat(1, 2, 1), weight=[[1.0], [2.0], [3.0]], v=[4.0]), [0.5], [[1.0, -0.5]], [3.046377]),
        # (3, 4) and (4, 3): 24 / (5·5) = 0.96, over τ = 0.1: 9.6
        (Cosine(0.1), [3.0, 4.0], [[4.0, 3.0]], [9.6]),
        # 1·4 + 2·5 + 3·(−6) = −4
        (Dot(), [1.0, 2.0, 3.0], [[4.0, 5.0, -6.0]], [-4.0]),
        # gate σ(1·1 + 2·2 − 4) = σ(1) = 0.731059, inner 1·2 = 2
        (
            with_numbers(Gated(1, 1), query_weight=[[1.0]], key_weight=[[2.0]], bias=[[-4.0]]),
            [1.0],
            [[2.0]],
            [2 / (1 + math.exp(-1))],
        ),
        # (1·3 + 2·4)·5 = 55
        (with_numbers(General(2, 1), weight=[[3.0], [4.0]]), [1.0, 2.0], [[5.0]], [55.0]),
        # of the second place: 1·5 + 2·6 = 17
        (
            with_numbers(Location(2, 3), weight=[[3.0, 5.0, 7.0], [4.0, 6.0, 8.0]]),
            [1.0, 2.0],
            [[0.0]] * 2,
            [11.0, 17.0],
        ),
        # (1·2 + 1·4 + 1·1 + 1·1) / √4 = 8/2
        (ScaledDot(), [1.0] * 4, [[2.0, 4.0, 1.0, 1.0]], [4.0]),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Score) else "",
)
def test_one_number_by_hand(score: Score, query: list[float], keys: list[list[float]], expected: list[float]) -> None:
    scores = score(torch.tensor([[[query]]]), torch.tensor([[keys]]))
    assert scores.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_steps_are_named() -> None:
    steps = with_numbers(Additive(1, 1, 2), **ADDITIVE).steps(torch.tensor([[[[0.5]]]]), torch.tensor([[[[1.0]]]]))
    assert steps["scores"].item() == pytest.approx(2.715445, abs=1e-6)
    assert steps["query_half"].flatten().tolist() == [1.0, 1.0]
    assert steps["key_half"].flatten().tolist() == [0.5, -1.0]
    assert steps["hidden"].shape == (1, 1, 1, 1, 2)
    steps = ScaledDot().steps(torch.ones(1, 1, 1, 4), torch.tensor([[[[2.0, 4.0, 1.0, 1.0]]]]))
    assert {name: tensor.item() for name, tensor in steps.items()} == {"products": 8.0, "scores": 4.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda heads: Additive(3, 5, 7, heads=heads),
        lambda heads: Concat(3, 5, 7, heads),
        lambda heads: Gated(3, 5, General(3, 5), heads=heads),
        lambda heads: General(3, 5, heads=heads),
    ],
    ids=["additive", "concat", "gated", "general"],
)
def test_each_head_may_have_its_own_parameters(make: Callable[[int | None], nn.Module]) -> None:
    own, query, key = make(2), torch.randn(3, 2, 11, 3), torch.randn(3, 2, 13, 5)
    for parameter in own.parameters():
        nn.init.normal_(parameter)
    scores = own(query, key)
    assert scores.shape == (3, 2, 11, 13)
    for head in range(2):
        shared = make(None)
        inner = {name for name, _ in own.named_parameters() if name.startswith("inner")}
        shared.load_state_dict({name: part if name in inner else part[head] for name, part in own.state_dict().items()})
        torch.testing.assert_close(shared(query, key)[:, head], scores[:, head])


def test_for_widths_and_how_they_start() -> None:
    additive = Additive.for_widths(3, 5, 2)
    assert (additive.widths, additive.hidden, additive.heads, additive.per_pair(3)) == ((3, 5), 5, 2, 5)
    assert additive.v.shape == (2, 5)
    concat = Concat.for_widths(5, 11, 3)
    assert (concat.widths, concat.hidden, concat.heads) == ((5, 11), 11, 3)
    assert concat.weight.shape == (3, 16, 11)
    assert 0.2 < concat.weight.abs().max() <= 0.25
    assert Gated.for_widths(3, 3, 2).heads == 2
    assert Gated(3, 3, inner=General(3, 3, heads=5)).heads == 5
    for heads in (None, 3):
        general = General(16, 5, heads)
        assert general.weight.shape == ((16, 5) if heads is None else (3, 16, 5))
        assert 0.15 < general.weight.abs().max() <= 0.25
    assert General.for_widths(16, 5, 3).heads == 3


@pytest.mark.parametrize("heads", [None, 2])
def test_concat_is_the_additive_score_without_a_bias(heads: int | None) -> None:
    concat, additive = Concat(3, 5, 7, heads), Additive(3, 5, 7, heads, bias=False)
    concat.load_state_dict({"weight": torch.cat((additive.query_weight, additive.key_weight), -2), "v": additive.v})
    query, key = torch.randn(11, 2, 13, 3), torch.randn(11, 2, 2, 5)
    torch.testing.assert_close(concat(query, key), additive(query, key))
    torch.testing.assert_close(concat.lower_query(query).features, additive.lower_query(query).features)
    torch.testing.assert_close(concat.lower_key(key).features, additive.lower_key(key).features)


def test_of_the_cosine_lengths_do_not_matter_and_scores_stay_between_the_bounds() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    scores = Cosine(0.5)(query, key)
    torch.testing.assert_close(Cosine(0.5)(3 * query, key * torch.rand(2, 3, 11, 1).add(0.1)), scores)
    assert scores.abs().max() <= 2.0
    torch.testing.assert_close(Cosine(0.5)(query, query).diagonal(0, -2, -1), torch.full((2, 3, 5), 2.0))
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match=r"^temperature must be > 0, got"):
            Cosine(temperature)


def test_a_vector_of_length_zero_has_cosine_zero_and_a_finite_gradient() -> None:
    query = torch.zeros(1, 1, 1, 3, requires_grad=True)
    scores = Cosine()(query, torch.randn(1, 1, 2, 3))
    scores.sum().backward()
    assert scores.tolist() == [[[[0.0, 0.0]]]]
    assert query.grad.isfinite().all()


@pytest.mark.parametrize(
    "inner",
    [Dot(), ScaledDot(), Gaussian(0.5), General(7, 7, heads=3), Additive(7, 7, 5)],
    ids=lambda part: type(part).__name__,
)
def test_with_the_gate_open_it_is_the_inner_score(inner: Score) -> None:
    query, key, score = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), Gated(7, 7, inner)
    nn.init.zeros_(score.query_weight)
    nn.init.zeros_(score.key_weight)

    def opened(to: float) -> Tensor:
        nn.init.constant_(score.bias, to)
        return score(query, key)

    torch.testing.assert_close(opened(50.0), inner(query, key))
    torch.testing.assert_close(opened(0.0), inner(query, key) / 2)
    assert opened(-200.0).abs().max() < 1e-30


def test_a_gate_needs_no_bias_and_its_inner_score_must_fit() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 11)
    with pytest.raises(ShapeError, match=r"^Dot needs queries and keys of one width, got Dq = 3 and Dk = 11$"):
        attend(query, key, key, score=Gated(3, 11))
    assert attend(query, key, key, score=Gated(3, 11, inner=General(3, 11))).shape == (2, 5, 11)
    assert Gated(3, 11, inner=Additive(3, 11, 13)).per_pair(3) == 13
    assert Gated(9, 9).per_pair(9) == 3
    assert Gated(3, 3, bias=False).bias is None
    assert attend(query, query, query, score=Gated(3, 3, bias=False)).shape == (2, 5, 3)


def test_a_scale_multiplies_every_score() -> None:
    score, plain = General(7, 5, scale=0.25), General(7, 5)
    plain.load_state_dict(score.state_dict())
    query, key = torch.randn(2, 3, 4, 7), torch.randn(2, 3, 6, 5)
    torch.testing.assert_close(score(query, key), plain(query, key) / 4)
    torch.testing.assert_close(score.score_lowered(score.lower_query(query), score.lower_key(key)), score(query, key))
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    torch.testing.assert_close(ScaledDot()(query, key), Dot()(query, key) / math.sqrt(7))
    torch.testing.assert_close(ScaledDot(0.3)(query, key), Dot()(query, key) * 0.3)
    # a scale that was set goes to every implementation
    for implementation in ("sdpa", "tiled", "reference"):
        output = attend(query, key, key, score=ScaledDot(1.0), implementation=implementation)
        torch.testing.assert_close(output, attend(query, key, key, score="dot", implementation="reference"))


def test_of_locations_keys_are_their_places() -> None:
    score, query = Location(5, 11, heads=2), torch.randn(3, 2, 7, 5)
    first, second = torch.randn(3, 2, 4, 6), torch.randn(3, 2, 4, 6)
    torch.testing.assert_close(score(query, first), score(query, second))
    # more keys leave the scores of the first as they are, and keys that come later have later places
    key = torch.randn(3, 2, 9, 6)
    torch.testing.assert_close(score(query, key)[..., :4], score(query, first))
    early, late = lower_key(score, key[:, :, :4], 2), lower_key(score, key[:, :, 4:], 2, None, 4)
    lowered = early._replace(features=torch.cat((early.features, late.features), 2))
    torch.testing.assert_close(score.score_lowered(score.lower_query(query), lowered), score(query, key))


@pytest.mark.parametrize("implementation", ["reference", "tiled"])
def test_locations_beyond_the_last_and_other_widths_are_refused(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 8, 6)
    with pytest.raises(ShapeError, match=r"^Location was made for up to 7 keys, got 8; increase maximum_length$"):
        attend(query, key, key, score=Location(5, 7), implementation=implementation)
    assert attend(query, key, key, score=Location(5, 8), implementation=implementation).shape == (2, 3, 6)
    with pytest.raises(ShapeError, match=r"^Location was made for queries of width 4, got 5$"):
        attend(query, key, key, score=Location(4))
    with pytest.raises(ArgumentError, match=r"^maximum_length must be ≥ 1, got 0$"):
        Location(5, 0)
    with pytest.raises(MissingArgumentError, match=r"score=Location\(query_width\)"):
        attend(query, key, key, score="location")
