"""Each score but the Gaussian: its defining property, and one number worked by hand."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from attent.attention import attend
from attent.attention.call import lower_key
from attent.attention.scores import Additive, Concat, Cosine, Dot, Gated, Gaussian, General, Location, ScaledDot
from attent.errors import ArgumentError, MissingArgumentError, ShapeError


def test_each_head_may_have_its_own_parameters() -> None:
    own, query, key = Additive(3, 5, 7, heads=2), torch.randn(3, 2, 11, 3), torch.randn(3, 2, 13, 5)
    nn.init.normal_(own.bias)
    scores = own(query, key)
    for head in range(2):
        shared = Additive(3, 5, 7)
        shared.load_state_dict({name: part[head] for name, part in own.state_dict().items()})
        torch.testing.assert_close(shared(query, key)[:, head], scores[:, head])


def test_additive_one_number_by_hand() -> None:
    score = Additive(1, 1, 2)
    numbers = {"query_weight": [[1.0, 2.0]], "key_weight": [[0.5, -1.0]], "bias": [0.5, 0.0], "v": [3.0, -1.0]}
    score.load_state_dict({name: torch.tensor(value) for name, value in numbers.items()})
    # q = ½, k = 1: tanh(½ + ½ + ½) = 0.905148 and tanh(1 − 1) = 0; 3·0.905148 − 1·0 = 2.715445
    steps = score.steps(torch.tensor([[[[0.5]]]]), torch.tensor([[[[1.0]]]]))
    assert steps["scores"].item() == pytest.approx(2.715445, abs=1e-6)
    assert steps["query_half"].flatten().tolist() == [1.0, 1.0]
    assert steps["key_half"].flatten().tolist() == [0.5, -1.0]
    assert steps["hidden"].shape == (1, 1, 1, 1, 2)


def test_for_widths() -> None:
    score = Additive.for_widths(3, 5, 2)
    assert (score.widths, score.hidden, score.heads) == ((3, 5), 5, 2)
    assert score.v.shape == (2, 5)
    assert score.per_pair(3) == 5


@pytest.mark.parametrize("heads", [None, 2])
def test_it_is_the_additive_score_without_a_bias(heads: int | None) -> None:
    concat, additive = Concat(3, 5, 7, heads), Additive(3, 5, 7, heads, bias=False)
    concat.load_state_dict({"weight": torch.cat((additive.query_weight, additive.key_weight), -2), "v": additive.v})
    query, key = torch.randn(11, 2, 13, 3), torch.randn(11, 2, 2, 5)
    torch.testing.assert_close(concat(query, key), additive(query, key))
    torch.testing.assert_close(concat.lower_query(query).features, additive.lower_query(query).features)
    torch.testing.assert_close(concat.lower_key(key).features, additive.lower_key(key).features)


def test_concat_one_number_by_hand() -> None:
    score = Concat(1, 2, 1)
    score.load_state_dict({"weight": torch.tensor([[1.0], [2.0], [3.0]]), "v": torch.tensor([4.0])})
    # 4·tanh(1·½ + 2·1 + 3·(−½)) = 4·tanh 1 = 3.046377
    scores = score(torch.tensor([[[[0.5]]]]), torch.tensor([[[[1.0, -0.5]]]]))
    assert scores.item() == pytest.approx(3.046377, abs=1e-6)


def test_for_widths_and_its_start() -> None:
    score = Concat.for_widths(5, 11, 3)
    assert (score.widths, score.hidden, score.heads) == ((5, 11), 11, 3)
    assert score.weight.shape == (3, 16, 11)
    assert 0.2 < score.weight.abs().max() <= 0.25
    assert isinstance(score.v, nn.Parameter)


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


def test_cosine_one_number_by_hand() -> None:
    # (3, 4) and (4, 3): 24 / (5·5) = 0.96, over τ = 0.1: 9.6
    scores = Cosine(0.1)(torch.tensor([[[[3.0, 4.0]]]]), torch.tensor([[[[4.0, 3.0]]]]))
    assert scores.item() == pytest.approx(9.6)


def test_the_temperature_is_positive() -> None:
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match=r"^temperature must be > 0, got"):
            Cosine(temperature)
    assert repr(Cosine(0.5)) == "Cosine(temperature=0.5)"


def test_dot_one_number_by_hand() -> None:
    # 1·4 + 2·5 + 3·(−6) = −4
    assert Dot()(torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[[[4.0, 5.0, -6.0]]]])).item() == -4.0


def opened(score: Gated, to: float) -> Gated:
    """The gate forced to one number."""
    for weight in (score.query_weight, score.key_weight):
        nn.init.zeros_(weight)
    nn.init.constant_(score.bias, to)
    return score


@pytest.mark.parametrize(
    "inner",
    [Dot(), ScaledDot(), Gaussian(0.5), General(7, 7, heads=3), Additive(7, 7, 5)],
    ids=lambda part: type(part).__name__,
)
def test_with_the_gate_open_it_is_the_inner_score(inner) -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    torch.testing.assert_close(opened(Gated(7, 7, inner), 50.0)(query, key), inner(query, key))
    torch.testing.assert_close(opened(Gated(7, 7, inner), 0.0)(query, key), inner(query, key) / 2)
    assert opened(Gated(7, 7, inner), -200.0)(query, key).abs().max() < 1e-30


def test_each_head_may_have_its_own_gate() -> None:
    own, query, key = Gated(3, 3, heads=2), torch.randn(5, 2, 7, 3), torch.randn(5, 2, 11, 3)
    nn.init.normal_(own.bias)
    for head in range(2):
        shared = Gated(3, 3)
        shared.load_state_dict({name: part[head] for name, part in own.state_dict().items()})
        torch.testing.assert_close(shared(query, key)[:, head], own(query, key)[:, head])
    assert Gated.for_widths(3, 3, 2).heads == 2
    assert Gated(3, 3, inner=General(3, 3, heads=5)).heads == 5
    assert Gated(3, 3, bias=False).bias is None
    assert Gated(3, 3, bias=False)(query, key).shape == (5, 2, 7, 11)


def test_gated_one_number_by_hand() -> None:
    score = Gated(1, 1)
    score.load_state_dict(
        {"query_weight": torch.tensor([[1.0]]), "key_weight": torch.tensor([[2.0]]), "bias": torch.tensor([[-4.0]])}
    )
    # gate σ(1·1 + 2·2 − 4) = σ(1) = 0.731059, inner 1·2 = 2
    scores = score(torch.tensor([[[[1.0]]]]), torch.tensor([[[[2.0]]]]))
    assert scores.item() == pytest.approx(2 / (1 + math.exp(-1)))


def test_the_inner_score_must_fit_too() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 11)
    with pytest.raises(
        ShapeError, match=f"^{re.escape('Dot needs queries and keys of one width, got Dq = 3 and Dk = 11')}$"
    ):
        attend(query, key, key, score=Gated(3, 11))
    assert attend(query, key, key, score=Gated(3, 11, inner=General(3, 11))).shape == (2, 5, 11)
    assert Gated(3, 11, inner=Additive(3, 11, 13)).per_pair(3) == 13
    assert Gated(3, 3).per_pair(3) == 3


def test_each_head_may_have_its_own_weights() -> None:
    own, query, key = General(5, 3, heads=2), torch.randn(7, 2, 11, 5), torch.randn(7, 2, 13, 3)
    scores = own(query, key)
    assert scores.shape == (7, 2, 11, 13)
    for head in range(2):
        shared = General(5, 3)
        shared.load_state_dict({"weight": own.weight[head]})
        torch.testing.assert_close(shared(query, key)[:, head], scores[:, head])


def test_general_one_number_by_hand() -> None:
    score = General(2, 1)
    score.weight = nn.Parameter(torch.tensor([[3.0], [4.0]]))
    # (1·3 + 2·4)·5 = 55
    assert score(torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[5.0]]]])).item() == 55.0


@pytest.mark.parametrize("heads", [None, 3])
def test_it_starts_within_the_bound_of_its_width(heads: int | None) -> None:
    score = General(16, 5, heads)
    assert score.weight.shape == ((16, 5) if heads is None else (3, 16, 5))
    assert 0.15 < score.weight.abs().max() <= 0.25
    assert repr(score) == ("General()" if heads is None else "General(heads=3)")
    assert General.for_widths(16, 5, 3).heads == 3


def test_a_scale_multiplies_every_score() -> None:
    score, plain = General(7, 5, scale=0.25), General(7, 5)
    plain.load_state_dict(score.state_dict())
    query, key = torch.randn(2, 3, 4, 7), torch.randn(2, 3, 6, 5)
    torch.testing.assert_close(score(query, key), plain(query, key) / 4)
    torch.testing.assert_close(score.score_lowered(score.lower_query(query), score.lower_key(key)), score(query, key))
    assert repr(score) == "General(scale=0.25)"


def test_keys_are_their_places() -> None:
    score, query = Location(5, 11, heads=2), torch.randn(3, 2, 7, 5)
    first, second = torch.randn(3, 2, 4, 6), torch.randn(3, 2, 4, 6)
    torch.testing.assert_close(score(query, first), score(query, second))
    # more keys leave the scores of the first as they are
    torch.testing.assert_close(score(query, torch.randn(3, 2, 9, 6))[..., :4], score(query, first))


def test_keys_that_come_later_have_later_places() -> None:
    score, query, key = Location(5, 11), torch.randn(3, 1, 7, 5), torch.randn(3, 1, 9, 6)
    first, rest = lower_key(score, key[:, :, :4], 1), lower_key(score, key[:, :, 4:], 1, None, 4)
    features = torch.cat((first.features, rest.features), 2)
    actual = score.score_lowered(score.lower_query(query), first._replace(features=features))
    torch.testing.assert_close(actual, score(query, key))


def test_location_one_number_by_hand() -> None:
    score = Location(2, 3)
    score.weight = nn.Parameter(torch.tensor([[3.0, 5.0, 7.0], [4.0, 6.0, 8.0]]))
    # of the second place: 1·5 + 2·6 = 17
    assert score(torch.tensor([[[[1.0, 2.0]]]]), torch.zeros(1, 1, 2, 1))[..., 1].item() == 17.0


@pytest.mark.parametrize("implementation", ["reference", "tiled"])
def test_more_keys_than_places_are_refused(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 8, 6)
    with pytest.raises(ShapeError, match=r"^Location was made for up to 7 keys, got 8; increase maximum_length$"):
        attend(query, key, key, score=Location(5, 7), implementation=implementation)
    assert attend(query, key, key, score=Location(5, 8), implementation=implementation).shape == (2, 3, 6)


def test_what_it_was_made_for() -> None:
    query = torch.randn(2, 3, 4)
    with pytest.raises(ShapeError, match=r"^Location was made for queries of width 5, got 4$"):
        attend(query, query, query, score=Location(5))
    with pytest.raises(ArgumentError, match=r"^maximum_length must be ≥ 1, got 0$"):
        Location(5, 0)
    with pytest.raises(MissingArgumentError, match=r"score=Location\(query_width\)"):
        attend(query, query, query, score="location")
    assert repr(Location(5, 7, heads=2)) == "Location(maximum_length=7, heads=2)"


def test_it_is_the_dot_product_over_the_root_of_the_width() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    torch.testing.assert_close(ScaledDot()(query, key), Dot()(query, key) / math.sqrt(7))
    torch.testing.assert_close(ScaledDot(0.3)(query, key), Dot()(query, key) * 0.3)
    # a scale that was set goes to every implementation
    for implementation in ("sdpa", "tiled", "reference"):
        output = attend(query, key, key, score=ScaledDot(1.0), implementation=implementation)
        torch.testing.assert_close(output, attend(query, key, key, score="dot", implementation="reference"))


def test_scaled_dot_one_number_by_hand() -> None:
    # (1·2 + 1·4 + 1·1 + 1·1) / √4 = 8/2
    steps = ScaledDot().steps(torch.ones(1, 1, 1, 4), torch.tensor([[[[2.0, 4.0, 1.0, 1.0]]]]))
    assert {name: tensor.item() for name, tensor in steps.items()} == {"products": 8.0, "scores": 4.0}


def test_repr() -> None:
    assert repr(ScaledDot()) == "ScaledDot()"
    assert repr(ScaledDot(0.5)) == "ScaledDot(scale=0.5)"
