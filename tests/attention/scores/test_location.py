from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention import attend
from attent.attention.call import lower_key
from attent.attention.scores import Location
from attent.errors import ArgumentError, MissingArgumentError, ShapeError


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


def test_one_number_by_hand() -> None:
    score = Location(2, 3)
    score.weight = nn.Parameter(torch.tensor([[3.0, 5.0, 7.0], [4.0, 6.0, 8.0]]))
    # of the second place: 1·5 + 2·6 = 17
    assert score(torch.tensor([[[[1.0, 2.0]]]]), torch.zeros(1, 1, 2, 1))[..., 1].item() == 17.0


@pytest.mark.parametrize("implementation", ["reference", "tiled"])
def test_more_keys_than_places_are_refused(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 8, 6)
    with pytest.raises(ShapeError, match=r"^Location was made for up to 7 keys, got 8; give maximum_length$"):
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
