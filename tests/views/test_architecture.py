from __future__ import annotations

import pytest
from torch import nn

from attent.models.encoder import EncoderModel
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.views.architecture import Box, columns


def transformer(**settings: object) -> Transformer:
    small = {"encoder_layers": 2, "decoder_layers": 3, "width": 12, "feed_forward": 16, "heads": 3, **settings}
    return Transformer(TransformerSettings.model_validate(small), 11, 11)


MODELS = {
    "post": lambda: transformer(),
    "pre": lambda: transformer(norm="pre", position="rotary", heads=2, share_embeddings="all"),
    "learned": lambda: transformer(position="learned", share_embeddings="none", output_bias=True),
    "bahdanau": lambda: RNN(RnnSettings(width=8, embedding_width=5, token_in_query=True, attention="bahdanau"), 13, 11),
    "luong": lambda: RNN(
        RnnSettings(width=8, embedding_width=5, attention="luong", layer_norm=True, cell="lstm"), 13, 11
    ),
    "none": lambda: RNN(RnnSettings(width=8, embedding_width=5, attention="none", decoder_layers=2), 13, 11),
    "tokens": lambda: EncoderModel(EncoderSettings(layers=2, width=12, heads=3), 7, 5),
    "vectors": lambda: EncoderModel(
        EncoderSettings(layers=2, width=12, heads=3, input="vectors", cls=True, position="learned"), 7, 5
    ),
}


def boxes(model: nn.Module) -> list[Box]:
    return [box for column in columns(model) for group in column.groups for box in group.boxes]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_in_one_box(name: str) -> None:
    model = MODELS[name]()
    total = sum(
        group.times * sum(box.parameters for box in group.boxes) for column in columns(model) for group in column.groups
    )
    assert total == sum(parameter.numel() for parameter in model.parameters())


def test_a_decoder_s_second_attention_reads_the_memory() -> None:
    encoder, decoder = columns(transformer())
    assert [group.times for group in encoder.groups] == [1, 2]
    assert [group.times for group in decoder.groups] == [1, 3, 1]
    titles = [
        "Causal self-attention",
        "Add & norm",
        "Attention to the source",
        "Add & norm",
        "Feed-forward",
        "Add & norm",
    ]
    assert [box.title for box in decoder.groups[1].boxes] == titles
    assert [box.title for box in boxes(transformer()) if box.reads_memory] == ["Attention to the source"]
    assert decoder.groups[1].boxes[0].detail == "3 heads of 4 · scaled dot · softmax"
    assert (encoder.gives, decoder.gives) == ("memory", "probabilities, V = 11")


def test_with_pre_norm_the_residual_connection_leads_past_the_norm() -> None:
    layer = columns(MODELS["pre"]())[0].groups[1].boxes
    assert [(box.title, box.skip) for box in layer[:3]] == [("Norm", 0), ("Self-attention", 0), ("Add", 2)]


def test_shared_parameters_are_said() -> None:
    assert [box.title for box in boxes(MODELS["pre"]()) if box.is_shared] == ["Embedding", "Linear"]


def test_a_recurrent_decoder_starts_from_the_source() -> None:
    encoder, decoder = columns(MODELS["bahdanau"]())
    assert [box.title for box in encoder.groups[1].boxes] == ["GRU in both directions"]
    assert [(box.title, box.reads_memory) for box in decoder.groups[1].boxes] == [
        ("GRU", True),
        ("Attention to the source", True),
        ("Readout", False),
    ]


def test_one_column_for_an_encoder_alone() -> None:
    (column,) = columns(MODELS["vectors"]())
    assert column.reads == "vectors, (B, T, D)"
    assert [box.title for box in column.groups[0].boxes] == ["Embedding", "[CLS]", "+ learned positions"]
