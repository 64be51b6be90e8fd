from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from architecture import Box, Group, ModelColumn, architecture, columns, svg
from torch import nn

from attent.errors import ArgumentError
from attent.models.encoder import EncoderModel
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer


def transformer(**settings: object) -> Transformer:
    small = {"encoder_layers": 2, "decoder_layers": 3, "width": 12, "feed_forward": 16, "heads": 3, **settings}
    return Transformer(TransformerSettings.model_validate(small), 11, 11)


def recurrent(**settings: object) -> RNN:
    return RNN(RnnSettings.model_validate({"width": 8, "embedding_width": 5, **settings}), 13, 11)


def encoder(**settings: object) -> EncoderModel:
    return EncoderModel(EncoderSettings.model_validate({"layers": 2, "width": 12, "heads": 3, **settings}), 7, 5)


MODELS = {
    "post": transformer,
    "pre": lambda: transformer(norm="pre", position="rotary", heads=2, share_embeddings="all"),
    "learned": lambda: transformer(position="learned", share_embeddings="none", output_bias=True),
    "bahdanau": lambda: recurrent(token_in_query=True, attention="bahdanau"),
    "luong": lambda: recurrent(attention="luong", layer_norm=True, cell="lstm"),
    "none": lambda: recurrent(attention="none", decoder_layers=2),
    "tokens": encoder,
    "vectors": lambda: encoder(input="vectors", cls=True, position="learned"),
}


def boxes(model: nn.Module) -> list[Box]:
    return [box for column in columns(model) for group in column.groups for box in group.boxes]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_in_one_box(name: str) -> None:
    model = MODELS[name]()
    groups = [group for column in columns(model) for group in column.groups]
    total = sum(group.times * box.parameters for group in groups for box in group.boxes)
    assert total == sum(parameter.numel() for parameter in model.parameters())


def test_a_decoder_s_second_attention_reads_the_memory() -> None:
    encoder, decoder = columns(transformer())
    assert [group.times for group in encoder.groups] == [1, 2]
    assert [group.times for group in decoder.groups] == [1, 3, 1]
    parts = ["Causal self-attention", "Attention to the source", "Feed-forward"]
    titles = [title for part in parts for title in (part, "Add & norm")]
    assert [box.title for box in decoder.groups[1].boxes] == titles
    assert [box.title for box in boxes(transformer()) if box.reads_memory] == ["Attention to the source"]
    assert decoder.groups[1].boxes[0].detail == "3 heads of 4 · scaled dot · softmax"
    assert (encoder.gives, decoder.gives) == ("memory", "probabilities, V = 11")


def test_a_recurrent_decoder_starts_from_the_source_and_pre_norm_leads_past_the_norm() -> None:
    encoder, decoder = columns(MODELS["bahdanau"]())
    assert [box.title for box in encoder.groups[1].boxes] == ["GRU in both directions"]
    reading = {box.title: box.reads_memory for box in decoder.groups[1].boxes}
    assert reading == {"GRU": True, "Attention to the source": True, "Readout": False}
    (column,) = columns(MODELS["vectors"]())
    assert column.reads == "vectors, (B, T, D)"
    assert [box.title for box in column.groups[0].boxes] == ["Embedding", "[CLS]", "+ learned positions"]
    layer = columns(MODELS["pre"]())[0].groups[1].boxes
    assert [(box.title, box.skip) for box in layer[:3]] == [("Norm", 0), ("Self-attention", 0), ("Add", 2)]
    assert [box.title for box in boxes(MODELS["pre"]()) if box.is_shared] == ["Embedding", "Linear"]


NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_drawing_is_an_svg_of_every_box_within_its_page(tmp_path: Path) -> None:
    file = tmp_path / "model.svg"
    model = transformer()
    architecture(model, file, "a <run> & more")
    text = file.read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in text
    # it asks nobody
    assert not re.search(r"(href|src|url)\s*[=(]\s*[\"']?(?!#)", text.replace(f'xmlns="{NAMESPACE[1:-1]}"', ""))
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = [element.text for element in root.iter(f"{NAMESPACE}text")]
    assert {"a <run> & more", "Self-attention", "Attention to the source", "2 ×", "Softmax"} <= set(texts)
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters" in texts
    for shape in root.iter(f"{NAMESPACE}rect"):
        x, y, across, down = (float(shape.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and x + across <= width and y >= 0 and y + down <= height
    for line in root.iter(f"{NAMESPACE}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_boxes_of_a_column_do_not_overlap() -> None:
    group = Group(tuple(Box(title, "1 × 2", "norm", skip=2 if title == "c" else 0) for title in "abc"), times=3)
    root = ElementTree.fromstring(svg([ModelColumn("in", (group, Group((Box("d", "", "output"),))), "out")], "t", ""))
    rects = [rect for rect in root.iter(f"{NAMESPACE}rect") if "box" in rect.attrib["class"].split()]
    tops = [float(rect.attrib["y"]) for rect in rects]
    assert all(above + 44 < below for below, above in itertools.pairwise(tops)), "the first box stands lowest"


def test_where_it_cannot_be_drawn(translator, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.svg, got 'model\.png'"):
        architecture(translator.model, "model.png")
    with pytest.raises(ArgumentError, match="cannot be written"):
        architecture(translator.model, tmp_path / "nowhere" / "model.svg")
