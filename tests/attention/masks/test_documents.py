from __future__ import annotations

import pytest
import torch

from attent.attention import attend, prepare
from attent.attention.masks import Causal, Documents
from attent.errors import ShapeError


def test_packed_documents_are_as_if_alone() -> None:
    features = torch.randn(2, 7, 3)
    packed = Documents(torch.tensor([[0, 0, 0, 1, 1, -1, -1], [5, 5, 2, 2, 2, 2, 7]]))
    output = attend(features, features, features, mask=Causal() & packed)
    for index, (first, last) in ((0, (0, 3)), (0, (3, 5)), (1, (0, 2)), (1, (2, 6)), (1, (6, 7))):
        single = features[index, first:last]
        torch.testing.assert_close(output[index, first:last], attend(single, single, single, mask="causal"))
    # nobody sees the padding, nor does the padding see anybody
    assert output[0, 5:].count_nonzero() == 0


def test_queries_belong_where_their_positions_do_or_where_it_is_said() -> None:
    keys = torch.tensor([[0, 0, 1, 1, 1]])
    assert Documents(keys).draw(2, 5) == "··■■■\n··■■■"
    assert Documents(keys).draw(4, 5) == "■■···\n··■■■\n··■■■\n··■■■"
    assert Documents(keys, torch.tensor([[0, 1, 2]])).draw(3, 5) == "■■···\n··■■■\n·····"


def test_a_document_for_each_key_and_query() -> None:
    mask = Documents(torch.zeros(2, 7).long(), torch.zeros(2, 5).long())
    mask.check(2, 1, 5, 7)
    with pytest.raises(ShapeError, match=r"^documents of keys must be \(B\|1, T\) = \(2, 11\), got \(2, 7\)$"):
        mask.check(2, 1, 5, 11)
    with pytest.raises(ShapeError, match=r"^documents of queries must be \(B\|1, T\) = \(2, 3\), got \(2, 5\)$"):
        mask.check(2, 1, 3, 7)
    with pytest.raises(ShapeError, match=r"^documents of keys must be \(B\|1, T\) = \(3, 7\), got \(2, 7\)$"):
        mask.check(3, 1, 5, 7)


@pytest.mark.parametrize(
    ("keys", "exact"),
    [
        ([0, 0, 1, 1, 1, -1, -1], True),
        ([3, 3, 0, 0, 0, 2, 2], True),
        ([0, 1, 0, 1, 1, 2, 2], False),
        ([-1, 0, 0, -1, 1, 1, -1], True),
    ],
)
def test_ranges_are_exact_where_no_document_is_interrupted(keys: list[int], exact: bool) -> None:
    features = torch.randn(1, 7, 3)
    call = prepare(features, features, features, mask=Documents(torch.tensor([keys]))).call
    assert call.mask is not None
    key_range = call.mask.key_range(call.pairs())
    assert key_range is not None
    assert key_range.exact is exact
    index = torch.arange(7)
    inside = (index >= key_range.begin) & (index < key_range.end)
    assert bool((inside | ~call.mask.allowed(call.pairs())).all())
    assert torch.equal(inside, call.mask.allowed(call.pairs())) is exact
