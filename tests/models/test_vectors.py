"""Encoder-decoder models whose source is a sequence of vectors, such as the patches of a picture."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, ShapeError
from attent.models.build import build
from attent.models.model import check_source
from attent.models.rnn import RNN, VectorEncoder
from attent.models.settings import ModelSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.text.batches import Batch
from attent.training.loss import translation_cross_entropy

SIZES = {"width": 12, "input": "vectors"}
SETTINGS: list[ModelSettings] = [
    TransformerSettings(encoder_layers=2, decoder_layers=1, feed_forward=13, heads=3, **SIZES),
    TransformerSettings(
        encoder_layers=1, decoder_layers=2, feed_forward=13, heads=2, norm="pre", share_embeddings="none", **SIZES
    ),
    RnnSettings(encoder_layers=2, embedding_width=7, **SIZES),
    RnnSettings(cell="lstm", decoder_layers=2, embedding_width=7, layer_norm=True, **SIZES),
    RnnSettings(attention="luong", embedding_width=7, **SIZES),
    RnnSettings(attention="none", embedding_width=7, **SIZES),
]
LENGTHS = torch.tensor([5, 3])
TOKENS = torch.tensor([[1, 7, 4, 9], [1, 5, 5, 8]])


def make(settings: ModelSettings) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    return build(settings, 3, 11).eval(), torch.randn(2, 5, 3)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_steps_equal_the_whole_and_padding_has_no_influence(settings: ModelSettings) -> None:
    model, vectors = make(settings)
    features = model.decode(model.encode(vectors, LENGTHS), TOKENS)
    changed = vectors.clone()
    changed[1, 3:] = 1e3
    torch.testing.assert_close(model.decode(model.encode(changed, LENGTHS), TOKENS), features)
    alone = model.decode(model.encode(vectors[1:, :3], LENGTHS[1:]), TOKENS[1:])
    torch.testing.assert_close(alone, features[1:])
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            state, steps = model.start(model.encode(vectors, LENGTHS)), list[Tensor]()
            for column in TOKENS.unbind(1):
                step, state = model.step(state, column)
                steps.append(step)
        torch.testing.assert_close(torch.stack(steps, 1), features)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_all_parameters_are_trained_and_no_source_is_a_token(settings: ModelSettings) -> None:
    model, vectors = make(settings)
    model.train()
    batch = Batch(vectors, LENGTHS, TOKENS[:, :-1], TOKENS[:, 1:], torch.tensor([3, 3]), 6)
    translation_cross_entropy(model, batch, 0.0, "float32").backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert [*model.embeddings] == ["target"]
    assert not model.batch_invariant
    assert not model.packed_decoders(vectors, LENGTHS, 4)


def test_maps_have_a_column_for_each_vector() -> None:
    for settings, encoder in ((SETTINGS[0], "encoder.layers.0"), (SETTINGS[2], "encoder.layers.0")):
        model, vectors = make(settings)
        with watch(model) as maps:
            model.decode(model.encode(vectors, LENGTHS), TOKENS)
        cross = next(weights for name, weights in maps.items() if name.endswith("cross_attention")).dense()
        assert cross.shape[2:] == (4, 5)
        assert (cross[1, ..., 3:] == 0).all()
        torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:-1]))
        assert maps[f"{encoder}.self_attention"].shape[2:] == (5, 5)


def test_the_first_state_is_computed_from_the_mean_annotation() -> None:
    model, vectors = make(SETTINGS[2])
    memory = model.encode(vectors, LENGTHS)
    expected = torch.stack([memory.features[0].mean(0), memory.features[1, :3].mean(0)])
    torch.testing.assert_close(model.decoder.summary_of(memory), expected)
    hidden = torch.tanh(model.decoder.first_state(expected))
    torch.testing.assert_close(model.start(memory).layers[0].hidden, hidden)


def test_the_encoder_of_vectors_knows_their_order() -> None:
    settings = RnnSettings(encoder_layers=2, **SIZES).vector_encoder
    # 4 divides the width, and 2 is the largest divisor of 10 among 4, 2 and 1
    assert (settings.layers, settings.width, settings.feed_forward, settings.heads) == (2, 12, 24, 4)
    assert RnnSettings(width=10, input="vectors").vector_encoder.heads == 2
    encoder, features = VectorEncoder(settings).eval(), torch.randn(1, 5, 12)
    order = torch.tensor([4, 0, 3, 1, 2])
    lengths = torch.tensor([5])
    permuted = encoder(features[:, order], lengths)
    assert not torch.allclose(permuted, encoder(features, lengths)[:, order], atol=1e-3)


def test_settings_without_vectors_are_those_of_earlier_versions() -> None:
    for kind in (TransformerSettings, RnnSettings):
        assert "input" not in kind().model_dump()
        assert kind(input="vectors").model_dump()["input"] == "vectors"
        with pytest.raises(ValidationError, match="input"):
            kind(input="words")


def test_vectors_share_no_embedding() -> None:
    for settings in (SETTINGS[0], SETTINGS[2]):
        shared = settings.model_copy(update={"share_embeddings": "all"})
        # also if a vector is as wide as the vocabulary
        model = build(shared, 11, 11)
        assert [*model.embeddings] == ["target"]
        assert model.to_logits.weight is model.embeddings["target"].weight
        with pytest.raises(ArgumentError, match="needs one vocabulary, got 3 source and 11 target"):
            build(shared, 3, 11)


def test_sources_of_other_axes_are_refused() -> None:
    for settings in (SETTINGS[0], SETTINGS[2]):
        model, vectors = make(settings)
        with pytest.raises(
            ShapeError, match=r"source must be \(B, Tk, D\) and lengths \(B,\), got \(2, 4\) and \(2,\)"
        ):
            model.encode(TOKENS, LENGTHS)
        with pytest.raises(ShapeError, match="got"):
            model.encode(vectors, LENGTHS[:1])
        with pytest.raises(ShapeError, match="vectors must have 3 numbers each, got 2"):
            model.encode(vectors[..., :2], LENGTHS)
    with pytest.raises(ShapeError, match=r"source must be \(B, Tk\) and"):
        check_source(torch.zeros(2, 5, 3), LENGTHS, "tokens")
    assert isinstance(build(SETTINGS[0], 3, 11), Transformer) and isinstance(build(SETTINGS[2], 3, 11), RNN)
