import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attent.layers.residual import Residual, Stream


def test_post_normalises_the_sum() -> None:
    residual, features, output = Residual(5, "post"), torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    stream, read = residual.enter(Stream(features))
    assert read is features
    torch.testing.assert_close(residual.leave(stream, output).features, F.layer_norm(features + output, (5,)))


def test_pre_normalises_what_the_sub_layer_reads() -> None:
    residual, features, output = Residual(5, "pre"), torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    stream, read = residual.enter(Stream(features))
    torch.testing.assert_close(read, F.layer_norm(features, (5,)))
    stream, read = Residual(5, "pre").enter(residual.leave(stream, output))
    torch.testing.assert_close(stream.features, features + output)
    torch.testing.assert_close(read, F.layer_norm(features + output, (5,)))


@pytest.mark.parametrize("training", [True, False])
def test_a_stack_ends_with_everything_added(training: bool) -> None:
    features, output, norm = torch.randn(2, 3, 5), torch.randn(2, 3, 5), nn.LayerNorm(5).train(training)
    torch.testing.assert_close(Residual(5, "pre").leave(Stream(features), output).end(norm), norm(features + output))
    assert Stream(features).end(nn.Identity()) is features


@pytest.mark.parametrize("training", [True, False])
def test_dropout_falls_on_the_output_alone(training: bool) -> None:
    residual = Residual(5, "pre", dropout=0.5).train(training)
    features, output = torch.randn(2, 3, 5), torch.ones(2, 3, 5)
    added = residual.enter(residual.leave(Stream(features), output))[0].features - features
    assert {round(value, 3) for value in added.flatten().tolist()} == ({0.0, 2.0} if training else {1.0})


def test_under_autocast_pre_norm_is_read_in_its_type_and_the_stream_stays_exact() -> None:
    residual, linear, features = Residual(8, "pre", dropout=0.1), nn.Linear(8, 8), torch.randn(2, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        stream, read = residual.enter(Stream(features))
        stream, read = residual.enter(residual.leave(stream, linear(read)))
    assert stream.features.dtype == torch.float32
    stream.features.sum().backward()
    assert linear.weight.grad.dtype == torch.float32
