from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention.base import And, DotScore, LoweredSide, Mask, Normalizer, Or, Pairs, Score, TanhScore
from attent.attention.masks import Causal, Padding, Prefix, Table, Window
from attent.errors import ShapeError


class Sum(Score):
    """A score without a lowered form."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query.sum(-1)[..., :, None] + key.sum(-1)[..., None, :]


class Ratio(Normalizer):
    def normalize(self, scores: Tensor) -> Tensor:
        return scores / scores.sum(-1, keepdim=True)


def pairs_of(queries: int, keys: int, start: int = 0) -> Pairs:
    rows = torch.arange(queries)
    return Pairs(rows, torch.arange(keys), (rows + start)[None], 1)


def test_pairs_are_compared_by_position() -> None:
    query, key = pairs_of(3, 5, start=2).broadcast_positions()
    assert query.shape == (1, 1, 3, 1)
    assert (query - key)[0, 0].tolist() == [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]


def test_a_score_needs_no_more_than_forward() -> None:
    score, query, key = Sum(), torch.randn(2, 3, 5, 2), torch.randn(2, 3, 7, 11)
    expected = score(query, key)
    assert torch.equal(score.score_lowered(score.lower_query(query), score.lower_key(key)), expected)
    assert torch.equal(score.steps(query, key)["scores"], expected)
    assert score.center(key) is None
    assert isinstance(Sum.for_widths(2, 11, 3), Sum)
    score.check(2, 11, 3)
    assert score.per_pair(2) == 1


def test_a_dot_form_is_scale_times_product_plus_biases() -> None:
    class Halved(DotScore):
        def scale(self, width: int) -> float:
            return 0.5

    query = LoweredSide(torch.tensor([[[[1.0, 2.0]]]]), bias=torch.tensor([[[10.0]]]))
    key = LoweredSide(torch.tensor([[[[3.0, 4.0], [5.0, 6.0]]]]), bias=torch.tensor([[[100.0, 200.0]]]))
    # ½·(1·3 + 2·4) + 10 + 100 = 115.5 and ½·(1·5 + 2·6) + 10 + 200 = 218.5
    assert Halved().score_lowered(query, key).tolist() == [[[[115.5, 218.5]]]]
    assert Halved().per_pair(64) == 1


def test_a_tanh_form_is_v_times_the_tanh_of_the_sum() -> None:
    class Weighted(TanhScore):
        hidden = 2

        def output_weights(self, like: Tensor) -> Tensor:
            return like.new_tensor([2.0, 3.0]).reshape(1, 1, 1, 2)

    query, key = LoweredSide(torch.tensor([[[[0.5, 1.0]]]])), LoweredSide(torch.tensor([[[[0.5, -1.0]]]]))
    # 2·tanh(0.5 + 0.5) + 3·tanh(1 − 1) = 2·0.761594 + 0
    torch.testing.assert_close(Weighted().score_lowered(query, key), torch.full((1, 1, 1, 1), 1.5231883))
    assert Weighted().per_pair(64) == 2


def test_a_normalizer_gives_hidden_pairs_and_blind_rows_nothing() -> None:
    scores = torch.tensor([[1.0, torch.nan, 3.0], [torch.inf, 2.0, 5.0]], dtype=torch.float64, requires_grad=True)
    weights = Ratio()(scores, torch.tensor([[True, False, True], [False, False, False]]))
    # the hidden score is the lowest number there is, which outweighs the others by far; what is left of the row is as
    # good as zero
    assert weights[0, 1] == 0
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    weights.sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[1].tolist() == [0.0, 0.0, 0.0]
    assert Ratio()(torch.tensor([[1.0, 3.0]])).tolist() == [[0.25, 0.75]]


def test_infinity_hides_pairs_from_a_normalizer() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [4.0, 2.0, 5.0]])
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    masked = scores.masked_fill(~allowed, -torch.inf)
    for weights in (Ratio().of_masked(masked), Ratio().of_masked(masked, allowed)):
        assert torch.equal(weights, Ratio()(scores, allowed))


def test_masks_join() -> None:
    either, combined = Causal() | Prefix(3), Causal() & Window(1, 0)
    assert isinstance(either, Or)
    assert isinstance(combined, And)
    assert either.draw(4) == "■■■·\n■■■·\n■■■·\n■■■■"
    assert combined.draw(4) == "■···\n■■··\n·■■·\n··■■"
    assert repr(combined) == "(Causal() & Window(left=1, right=0))"
    assert repr(either) == "(Causal() | Prefix(length=3))"


@pytest.mark.parametrize(
    "joined", [Causal() & Padding(torch.tensor([1, 2, 3])), Padding(torch.tensor([1, 2, 3])) | Causal()]
)
def test_both_sides_of_a_joined_mask_must_fit(joined: Mask) -> None:
    joined.check(3, 2, 5, 7)
    with pytest.raises(ShapeError, match=r"lengths must be \(B,\) = \(2,\), got \(3,\)"):
        joined.check(2, 2, 5, 7)


def test_a_mask_is_drawn_by_position_and_printed_where_it_has_a_picture() -> None:
    assert Causal().draw(2, 5) == "■■■■·\n■■■■■"
    assert Padding(torch.tensor([1, 3])).draw(1, 4, sequence=1) == "■■■·"
    assert Table(torch.tensor([[[[True]], [[False]]]])).draw(2, head=1, heads=2) == "··\n··"
    assert str(Causal()) == "Causal()\n" + "\n".join("■" * count + "·" * (8 - count) for count in range(1, 9))
    assert str(Table(torch.ones(3, 5, dtype=torch.bool))) == "Table((3, 5))"
