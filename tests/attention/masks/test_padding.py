from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.masks import Padding
from attent.errors import DTypeError, ShapeError


def test_each_sequence_has_its_own_length() -> None:
    query, key, value = torch.randn(3, 5, 2), torch.randn(3, 7, 2), torch.randn(3, 7, 11)
    lengths = torch.tensor([7, 3, 0], dtype=torch.int32)
    output = attend(query, key, value, mask=Padding(lengths))
    torch.testing.assert_close(attend(query, key, value, lengths=lengths), output)
    for index, length in enumerate((7, 3)):
        torch.testing.assert_close(output[index], attend(query[index], key[index, :length], value[index, :length]))
    assert output[2].count_nonzero() == 0


def test_the_picture() -> None:
    assert Padding(torch.tensor([1, 3])).draw(2, 4, sequence=1) == "■■■·\n■■■·"


def test_lengths_are_whole_numbers_one_a_sequence() -> None:
    with pytest.raises(ShapeError, match=r"^lengths must be \(B,\), got \(2, 1\)$"):
        Padding(torch.tensor([[1], [2]]))
    with pytest.raises(DTypeError, match=r"^lengths must be whole numbers, got torch.float32$"):
        Padding(torch.tensor([1.0]))
    with pytest.raises(ShapeError, match=r"^lengths must be \(B,\) = \(3,\), got \(2,\)$"):
        Padding(torch.tensor([1, 2])).check(3, 1, 5, 7)
    Padding(torch.tensor([4])).check(3, 1, 5, 7)
