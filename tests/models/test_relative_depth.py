from __future__ import annotations

import pytest
import torch

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer, copy_by_depth


def make_model(encoder: int, decoder: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    settings = TransformerSettings(
        encoder_layers=encoder, decoder_layers=decoder, width=8, feed_forward=5, heads=2, share_embeddings="all"
    )
    model = Transformer(settings, 9, 9).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize(
    ("encoder", "decoder", "encoder_from", "decoder_from"),
    [(6, 1, [0, 1, 1, 2, 3, 3], [2]), (4, 4, [0, 1, 2, 3], [0, 1, 2, 3]), (2, 3, [1, 3], [0, 2, 3])],
)
def test_layers_come_from_the_same_relative_depth(
    encoder: int, decoder: int, encoder_from: list[int], decoder_from: list[int]
) -> None:
    start, model = make_model(4, 4, 1), make_model(encoder, decoder, 2)
    copy_by_depth(model, start)
    for actual, expected, depths in (
        (model.encoder, start.encoder, encoder_from),
        (model.decoder, start.decoder, decoder_from),
    ):
        for layer, depth in zip(actual.layers, depths, strict=True):
            torch.testing.assert_close(layer.state_dict(), expected.layers[depth].state_dict(), rtol=0, atol=0)
    assert model.source_embedding.tokens.weight is model.to_logits.weight
    tensors = start.state_dict()
    for name in ("source_embedding.tokens.weight", "to_logits.weight"):
        assert torch.equal(model.state_dict()[name], tensors[name])
    if (encoder, decoder) == (4, 4):
        torch.testing.assert_close(model.state_dict(), tensors, rtol=0, atol=0)
