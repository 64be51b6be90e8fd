import torch
from torch.nn import functional as F

from attent.layers.residual import Residual


def test_post_normalises_the_sum() -> None:
    residual, features, output = Residual(5, "post"), torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    assert residual.enter(features) is features
    torch.testing.assert_close(residual.leave(features, output), F.layer_norm(features + output, (5,)))


def test_pre_normalises_what_the_sub_layer_reads() -> None:
    residual, features, output = Residual(5, "pre"), torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    torch.testing.assert_close(residual.enter(features), F.layer_norm(features, (5,)))
    torch.testing.assert_close(residual.leave(features, output), features + output)


def test_dropout_falls_on_the_output_alone() -> None:
    residual = Residual(5, "pre", dropout=0.5)
    features, output = torch.randn(2, 3, 5), torch.ones(2, 3, 5)
    added = residual.leave(features, output) - features
    assert {round(value, 3) for value in added.flatten().tolist()} == {0.0, 2.0}
