import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attent.layers.residual import Stream
from attent.models.settings import TransformerSettings
from attent.models.transformer_layers import DecoderLayer, Encoder, EncoderLayer

SETTINGS = TransformerSettings(encoder_layers=1, decoder_layers=2, width=6, feed_forward=7, heads=2, dropout=0.0)


def norm(features: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(features, (6,))


def test_encoder_layer_is_the_papers() -> None:
    layer, x = EncoderLayer(SETTINGS), torch.randn(2, 5, 6)
    z = norm(x + layer.self_attention(x))
    torch.testing.assert_close(layer(Stream(x), torch.tensor([5, 5])).features, norm(z + layer.feed_forward(z)))


def test_decoder_layer_is_the_papers() -> None:
    layer, y, m = DecoderLayer(SETTINGS), torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    lengths = torch.tensor([5, 2])
    z = norm(y + layer.self_attention(y, mask="causal"))
    z = norm(z + layer.cross_attention(z, m, lengths=lengths))
    stream, written = layer(Stream(y), None, layer.cross_attention.remember(m), lengths)
    torch.testing.assert_close(stream.features, norm(z + layer.feed_forward(z)))
    assert written.length == 3


def test_pre_norm_ends_with_a_norm() -> None:
    settings = SETTINGS.model_copy(update={"norm": "pre"})
    assert isinstance(Encoder(settings).norm, nn.LayerNorm)
    assert isinstance(Encoder(SETTINGS).norm, nn.Identity)


def test_positions_inside_attention_are_for_self_attention_alone() -> None:
    layer = DecoderLayer(SETTINGS.model_copy(update={"position": "rotary"}))
    assert layer.self_attention.position is not None
    assert layer.cross_attention.position is None


@pytest.mark.parametrize("kind", ["post", "pre"])
def test_training_and_evaluation_compute_the_same_without_dropout(kind: str) -> None:
    settings = SETTINGS.model_copy(update={"norm": kind, "encoder_layers": 2, "attention_dropout": 0.0})
    encoder, features, lengths = Encoder(settings), torch.randn(3, 5, 6, requires_grad=True), torch.tensor([5, 2, 3])
    inputs, gradient = (features, *encoder.parameters()), torch.randn(3, 5, 6)
    results = []
    for training in (True, False):
        memory = encoder.train(training)(features, lengths).features
        results.append((memory, *torch.autograd.grad(memory, inputs, gradient)))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
