import pytest
import torch

from attent.models import transformer_packing
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops import packed_linear, transformer

pytestmark = pytest.mark.needs_native


@torch.inference_mode()
def test_keys_and_values_of_the_memory_are_those_of_the_projections() -> None:
    """What encodes and steps is compared with the modules in tests/models."""
    settings = TransformerSettings(
        encoder_layers=1, decoder_layers=3, width=12, feed_forward=5, heads=3, key_value_heads=1
    )
    decoder, features = Transformer(settings, 7, 11).eval().decoder, torch.randn(2, 5, 12)
    actual = transformer.memory_keys_values(transformer_packing.pack(decoder), features)
    for layer, keys_values in zip(decoder.layers, actual, strict=True):
        projections = layer.cross_attention.key_projection, layer.cross_attention.value_projection
        torch.testing.assert_close(
            keys_values, torch.cat([packed_linear.linear(linear, features) for linear in projections], -1)
        )
