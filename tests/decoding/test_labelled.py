import torch

from attent.attention.attend import attend
from attent.decoding.labelled import LabelledMap


def test_rows_and_columns_have_names() -> None:
    _, weights = attend(torch.randn(1, 2, 3, 5), torch.randn(1, 2, 2, 5), torch.randn(1, 2, 2, 5), return_map=True)
    shown = LabelledMap(weights, ("a", "b", "c"), ("d", "e"))
    assert shown.weights.shape == (1, 2, len(shown.rows), len(shown.columns))
