from __future__ import annotations

import pytest
import torch

from attent.attention import attend, prepare
from attent.attention.positions import Alibi
from attent.errors import ShapeError


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        # 2^{−8/4 · 1, 2, 3, 4}
        (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        # those of 4, then the first and the third of 8: 2^{−1}, 2^{−3}
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (1, [1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
    ],
)
def test_slopes(heads: int, slopes: list[float]) -> None:
    assert Alibi.slopes(heads) == slopes


def test_the_penalty_grows_with_distance() -> None:
    zeros = torch.zeros(1, 4, 3, 2)
    pairs = prepare(zeros, torch.zeros(1, 4, 5, 2), torch.zeros(1, 4, 5, 2)).call.pairs()
    bias = Alibi().bias(pairs)
    # the queries stand at 2, 3 and 4
    distances = torch.tensor([[2, 1, 0, 1, 2], [3, 2, 1, 0, 1], [4, 3, 2, 1, 0]])
    assert torch.equal(bias[0], -torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None] * distances)


def test_it_is_exact_in_float64() -> None:
    # the steepest of 12 heads' slopes is 2^{−1/2}, which float32 would round
    assert all(torch.tensor(slope).item() == slope for heads in range(1, 9) for slope in Alibi.slopes(heads))
    zeros = torch.zeros(1, 12, 3, 2, dtype=torch.float64)
    scores = attend(zeros, zeros, zeros, position="alibi", return_map=True)[1].scores("biased")[0, 8, 2, 0]
    assert scores.item() == -2 * 2**-0.5


def test_a_near_key_is_favoured_among_equals() -> None:
    query, key = torch.zeros(2, 5, 3), torch.ones(2, 7, 3)
    weights = attend(query, key, key, position="alibi", mask="causal", return_map=True)[1].dense()
    assert (weights[:, -1].diff(dim=-1) > 0).all()
    assert torch.equal(weights.argmax(-1), torch.arange(2, 7).expand(2, 5))


def test_each_sequence_has_its_own_positions() -> None:
    features = torch.randn(2, 3, 5, 4)
    output = attend(features[:, :, :1], features, features, position="alibi", query_start=torch.tensor([0, 4]))
    for index, start in enumerate((0, 4)):
        single = features[index : index + 1]
        torch.testing.assert_close(
            output[index], attend(single[:, :, :1], single, single, position="alibi", query_start=start)[0]
        )


@pytest.mark.parametrize("heads", [3, 12])
def test_the_bias_by_offset_is_that_of_all_pairs(heads: int) -> None:
    zeros = torch.zeros(2, heads, 3, 2)
    pairs = prepare(zeros, torch.zeros(2, heads, 5, 2), torch.zeros(2, heads, 5, 2), query_start=1).call.pairs()
    query, key = pairs.broadcast_positions()
    assert torch.equal(Alibi(heads).bias_by_offset((key - query).flatten()), Alibi().bias(pairs).reshape(heads, -1))


def test_the_number_of_heads_comes_with_the_call() -> None:
    assert Alibi().bias_by_offset(torch.arange(3)) is None
    features = torch.zeros(1, 3, 5, 2)
    position = prepare(features, features, features, position=Alibi()).call.position
    assert position is not None
    assert position.bias_by_offset(torch.tensor([-2, 0])).tolist() == [[-2 / 16, 0.0], [-2 / 256, 0.0], [-2 / 4, 0.0]]
    with pytest.raises(ShapeError, match=r"^alibi was made for 2 heads, got 3$"):
        attend(features, features, features, position=Alibi(2))
