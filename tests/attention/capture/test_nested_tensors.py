from __future__ import annotations

import pytest
import torch

from attent.attention.call import prepare
from attent.attention.capture.nested_tensors import opened, within
from attent.attention.reference import steps


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sequences_are_filled_up() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(5, 3)])
    features, lengths = opened(nested)
    assert features.shape == (2, 5, 3)
    assert lengths.tolist() == [2, 5]
    assert features.sum((1, 2)).tolist() == [6.0, 15.0]
    assert opened(nested, 7)[0].shape == (2, 7, 3)


def test_padding_looks_at_nothing_and_is_not_looked_at() -> None:
    query, key = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    weights = steps(*prepare(query, key, key, mask=within(torch.tensor([1, 3]), 3, torch.tensor([5, 2]))))["weights"]
    assert (weights > 0).sum((1, 3)).tolist() == [[5, 0, 0], [2, 2, 2]]
