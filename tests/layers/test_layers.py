"""Embeddings, the feed-forward layer, residual connections and patches of pictures."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.errors import ArgumentError, ShapeError, UnknownNameError
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.layers.feed_forward import FeedForward
from attent.layers.patches import joined, patch_grid, patches
from attent.layers.residual import Residual, Stream
from attent.ops import native


def test_token_features_start_with_variance_one_and_padding_learns_nothing() -> None:
    assert abs(TokenEmbedding(997, 61)(torch.arange(1, 997)[None]).std().item() - 1) < 0.02
    embedding = TokenEmbedding(7, 4, padding=2)
    features = embedding(torch.tensor([[2, 5]]))
    # rows are scaled by the root of the width
    torch.testing.assert_close(features[0, 1], 2 * embedding.weight[5])
    features.sum().backward()
    assert embedding.weight.grad is not None
    assert features[0, 0].eq(0).all()
    assert embedding.weight.grad[2].eq(0).all()
    assert embedding.weight.grad[5].ne(0).all()


def test_vectors_are_projected_to_features_of_like_size() -> None:
    embedding = VectorEmbedding(701, 512)
    features = embedding(torch.randn(3, 5, 701))
    assert features.shape == (3, 5, 512)
    assert 0.9 < features.var() < 1.1
    with pytest.raises(ShapeError, match="vectors must have 701 numbers each, got 7"):
        embedding(torch.randn(3, 5, 7))


def test_a_feed_forward_layer_worked_by_hand() -> None:
    layer = FeedForward(2, 2)
    with torch.no_grad():
        layer.widen.weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.0]]))
        layer.widen.bias.copy_(torch.tensor([0.5, 0.0]))
        layer.narrow.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, -1.0]]))
        layer.narrow.bias.copy_(torch.tensor([0.0, 1.0]))
    # max(0, [1·3 + 2·1 + 0.5, −1·3]) = [5.5, 0]
    torch.testing.assert_close(layer(torch.tensor([3.0, 1.0])), torch.tensor([5.5, 12.0]))


def test_activations_by_name() -> None:
    assert (FeedForward(3, 5, activation="gelu").activation(torch.tensor(-1.0)) < 0).item()
    silu = FeedForward(3, 5, activation="silu").activation(torch.tensor([0.0, 1.0, -2.0]))
    torch.testing.assert_close(silu, torch.tensor([0.0, 0.731059, -0.238406]))
    with pytest.raises(UnknownNameError, match="did you mean 'gelu'"):
        FeedForward(3, 5, activation="gleu")


@pytest.mark.needs_amx
@pytest.mark.parametrize(("shape", "twice"), [((1, 32), True), ((3, 47, 64), True), ((1031, 96), False)])
def test_relu_within_the_product_is_as_exact_as_the_layers(shape: tuple[int, ...], twice: bool) -> None:
    layer, value = FeedForward(shape[-1], 64), torch.randn(shape).bfloat16()
    for first in layer.parameters():
        torch.nn.init.normal_(first, std=0.2)
        first.data = first.data.bfloat16().float()

    def results(layer: FeedForward, features: Tensor) -> list[Tensor]:
        features = features.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=features.dtype == torch.bfloat16):
            output = layer(features)
        inputs = [features, *layer.parameters()]
        gradients = torch.autograd.grad(output.to(torch.float64).sin().sum(), inputs, create_graph=twice)
        if twice:
            gradients = torch.autograd.grad(sum(gradient.double().square().sum() for gradient in gradients), inputs)
        return [output, *gradients]

    actual = results(layer, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain, exact = results(layer, value), results(copy.deepcopy(layer).double(), value.double())
    for first, second, right in zip(actual, plain, exact, strict=True):
        assert first.dtype == second.dtype
        assert (first - right).norm() <= 1.2 * (second - right).norm() + 1e-3 * right.norm()


@pytest.mark.needs_amx
def test_relu_within_the_product_keeps_nan() -> None:
    layer, features = FeedForward(32, 32), torch.randn(5, 32)
    features[2, 3] = torch.nan
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(features)
    assert output.isnan().any(-1).tolist() == [False, False, True, False, False]


@pytest.fixture
def features() -> Tensor:
    return torch.randn(2, 3, 5)


@pytest.fixture
def output() -> Tensor:
    return torch.randn(2, 3, 5)


def test_post_norm_is_of_the_sum(features: Tensor, output: Tensor) -> None:
    residual = Residual(5, "post")
    stream, read = residual.enter(Stream(features))
    assert read is features
    torch.testing.assert_close(residual.leave(stream, output).features, F.layer_norm(features + output, (5,)))


def test_pre_norm_is_of_what_the_sub_layer_reads(features: Tensor, output: Tensor) -> None:
    residual = Residual(5, "pre")
    stream, read = residual.enter(Stream(features))
    torch.testing.assert_close(read, F.layer_norm(features, (5,)))
    stream, read = Residual(5, "pre").enter(residual.leave(stream, output))
    torch.testing.assert_close(stream.features, features + output)
    torch.testing.assert_close(read, F.layer_norm(features + output, (5,)))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_falls_on_the_output_alone_and_a_stack_ends_with_everything_added(
    training: bool, features: Tensor, output: Tensor
) -> None:
    residual = Residual(5, "pre", dropout=0.5).train(training)
    added = residual.enter(residual.leave(Stream(features), torch.ones(2, 3, 5)))[0].features - features
    assert {round(value, 3) for value in added.flatten().tolist()} == ({0.0, 2.0} if training else {1.0})
    norm = nn.LayerNorm(5).train(training)
    torch.testing.assert_close(Residual(5, "pre").leave(Stream(features), output).end(norm), norm(features + output))
    assert Stream(features).end(nn.Identity()) is features


def test_under_autocast_pre_norm_is_read_in_its_type_and_the_stream_stays_exact() -> None:
    residual, linear = Residual(8, "pre", dropout=0.1), nn.Linear(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        stream, read = residual.enter(Stream(torch.randn(2, 3, 8)))
        stream, read = residual.enter(residual.leave(stream, linear(read)))
    assert stream.features.dtype == torch.float32
    stream.features.sum().backward()
    assert linear.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(("height", "width", "channels", "size"), [(6, 4, 3, 2), (3, 5, 2, 1), (7, 7, 1, 7)])
def test_patches_are_joined_to_the_same_pictures(height: int, width: int, channels: int, size: int) -> None:
    pictures = torch.randn(2, height, width, channels)
    cut = patches(pictures, size)
    assert cut.shape == (2, height * width // size**2, size * size * channels)
    assert joined(cut, height, width, size).equal(pictures)


def test_patches_are_in_reading_order_and_channels_of_a_pixel_together() -> None:
    pixels = torch.arange(24.0).reshape(1, 4, 6, 1)
    assert patches(pixels, 2)[0, :4].tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19]]
    assert patches(torch.arange(8.0).reshape(1, 2, 2, 2), 2)[0, 0].tolist() == [*range(8)]


def test_a_patch_must_divide_the_picture() -> None:
    assert patch_grid(6, 4, 2) == (3, 2)
    with pytest.raises(ArgumentError, match=r"must divide the height and the width of 6 x 4 pixels, got 3"):
        patches(torch.zeros(1, 6, 4, 1), 3)
    with pytest.raises(ArgumentError, match="got 0"):
        patch_grid(6, 4, 0)
    with pytest.raises(ShapeError, match=r"\(B, H, W, C\), got \(6, 4\)"):
        patches(torch.zeros(6, 4), 2)
    with pytest.raises(ShapeError, match=r"\(B, 6, 4·C\), got \(1, 5, 4\)"):
        joined(torch.zeros(1, 5, 4), 6, 4, 2)
