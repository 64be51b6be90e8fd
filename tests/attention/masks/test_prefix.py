from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.masks import Causal, Prefix
from attent.errors import ShapeError


def test_everyone_sees_the_beginning() -> None:
    assert Prefix(2).draw(3, 5) == "■■···\n■■···\n■■···"
    assert (Causal() | Prefix(2)).draw(4) == "■■··\n■■··\n■■■·\n■■■■"


def test_each_sequence_may_have_its_own() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 3)
    output = attend(query, key, key, mask=Prefix(torch.tensor([4, 1])))
    torch.testing.assert_close(output[0], attend(query[0], key[0, :4], key[0, :4]))
    torch.testing.assert_close(output[1], key[1, :1].expand(5, 3))
    torch.testing.assert_close(attend(query, key, key, mask=Prefix(torch.tensor(4)))[0], output[0])


def test_as_many_lengths_as_sequences() -> None:
    with pytest.raises(ShapeError, match=r"^prefix length must be a number or \(B,\) = \(2,\), got \(3,\)$"):
        Prefix(torch.tensor([1, 2, 3])).check(2, 1, 5, 7)
    Prefix(3).check(2, 1, 5, 7)
