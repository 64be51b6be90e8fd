"""The figures of introductions: their boxes are the steps that the parts compute, and they fit a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from draw import draw, main
from torch import nn

from attent import MultiHeadAttention
from attent.attention.scores import Gated, ScaledDot
from attent.errors import ArgumentError
from attent.models.build import build
from attent.models.encoder import EncoderModel
from attent.models.language_model import LanguageModel
from attent.models.rnn import RNN
from attent.models.settings import DecoderSettings, EncoderSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.runs.folder import RunConfig, RunWriter
from attent.text.tokenizer import CharTokenizer
from attent.views.palette import color, palette

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
SVG = "{http://www.w3.org/2000/svg}"
PHONE = 390
# Pixels of an average letter of the widest common system font, by size.
LETTER = 0.62


def transformer(**settings: object) -> Transformer:
    small = {"encoder_layers": 2, "decoder_layers": 3, "width": 12, "feed_forward": 20, "heads": 3, **settings}
    return Transformer(TransformerSettings.model_validate(small), 11, 11)


def recurrent(**settings: object) -> RNN:
    return RNN(RnnSettings.model_validate({"width": 8, "embedding_width": 5, **settings}), 13, 11)


MODELS: dict[str, Callable[[], nn.Module | None]] = {
    "symbols": lambda: None,
    "post": transformer,
    "pre": lambda: transformer(norm="pre", position="rotary", heads=2, width=16, key_value_heads=1),
    "alibi": lambda: transformer(position="alibi", normalizer="sparsemax"),
    "encoder": lambda: EncoderModel(
        EncoderSettings.model_validate({"layers": 2, "width": 12, "heads": 3, "feed_forward": 20}), 7, 5
    ),
    "causal": lambda: LanguageModel(DecoderSettings(layers=2, width=12, heads=3, feed_forward=20), 7, 7),
}


def root_of(tmp_path: Path, part: Any, model: nn.Module | None, name: str = "") -> ElementTree.Element:
    file = tmp_path / "x.svg"
    draw(part, file, model, name)
    return ElementTree.fromstring(file.read_text(encoding="utf-8"))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def steps(root: ElementTree.Element) -> list[str]:
    """The titles of the boxes, from the input to the output."""
    described = root.find(f"{SVG}desc")
    assert described is not None and described.text
    # not at the semicolon of [q; k]
    described_steps = re.split(r"; (?![^\[]*\])", described.text.split("Q and K: ")[1])
    return [step.partition(",")[0] for step in described_steps[:-1]]


@pytest.mark.parametrize("part", ["attention", "heads", "layer"])
@pytest.mark.parametrize("name", MODELS)
def test_a_figure_fits_a_phone_and_is_described(tmp_path: Path, part: str, name: str) -> None:
    root = root_of(tmp_path, part, MODELS[name](), "a <run> & more")
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width <= PHONE
    title, described = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text and described is not None and described.text
    drawn = [rect for rect in root.iter(f"{SVG}rect") if "page" not in rect.attrib["class"]]
    for rect in drawn:
        x, y, across, down = (float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
        assert x >= 0 and x + across <= width and y >= 64 and y + down <= height
    for line in root.iter(f"{SVG}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    for element in root.iter(f"{SVG}text"):
        size, x, half = float(element.attrib["font-size"]), float(element.attrib["x"]), 0.0
        assert size >= 11
        if element.attrib["text-anchor"] == "middle":
            half = len(element.text or "") * size * LETTER / 2
        assert x - half >= 0 and x + half <= width, element.text


def test_the_scaled_dot_product_has_the_papers_five_blocks(tmp_path: Path) -> None:
    root = root_of(tmp_path, "attention", None)
    assert steps(root) == ["MatMul", "Scale", "Mask", "SoftMax", "MatMul"]
    assert {"Scaled dot-product attention", "÷ √Dk (Tq, Tk)", "(Tq, Dk)", "(Tk, Dv)", "output (Tq, Dv)"} <= {
        *texts(root)
    }


LAST = ["Mask", "SoftMax", "MatMul"]
SCORES = {
    "dot": ["MatMul"],
    "cosine": ["Normalize", "MatMul", "Scale"],
    "general": ["Linear", "MatMul"],
    "additive": ["Linear", "Add", "tanh", "Linear"],
    "concat": ["Concat", "Linear", "tanh", "Linear"],
    "gaussian": ["Subtract", "Square", "Scale"],
    "location": ["Score"],
    "gated": ["MatMul", "Gate"],
}


@pytest.mark.parametrize("score", SCORES)
def test_every_score_has_its_own_steps(tmp_path: Path, score: str) -> None:
    root = root_of(tmp_path, "attention", transformer(score=score), "run")
    assert steps(root) == SCORES[score] + LAST
    assert "run: encoder.layers.0.self_attention" in texts(root)
    # of every pair, once a head; the features inside an additive score are a further axis
    assert any(text.endswith("(B, 3, Tq, Tk)") for text in texts(root))
    assert any(text.endswith("(B, 3, Tq, Tk, 4)") for text in texts(root)) == (
        score in ("additive", "concat", "gaussian")
    )


def test_masks_positions_and_normalizers_are_the_model_s(tmp_path: Path) -> None:
    pre = root_of(tmp_path, "attention", MODELS["pre"]())
    assert steps(pre) == ["Rotate", "MatMul", "Scale", *LAST]
    assert {"(B, 2, Tq, 8)", "(B, 1, Tk, 8)", "÷ √Dk = √8 (B, 2, Tq, Tk)", "padding (B, 2, Tq, Tk)"} <= {*texts(pre)}
    assert steps(root_of(tmp_path, "attention", MODELS["alibi"]())) == [
        *("MatMul", "Scale", "Add", "Mask", "Sparsemax", "MatMul")
    ]
    assert "causal (B, 3, Tq, Tk)" in texts(root_of(tmp_path, "attention", MODELS["causal"]()))


def test_recurrent_models_attend_to_the_source(tmp_path: Path) -> None:
    bahdanau = root_of(tmp_path, "attention", recurrent(attention="bahdanau"))
    assert steps(bahdanau) == [*SCORES["additive"], *LAST]
    assert "RNN: decoder.cross_attention" in texts(bahdanau)
    local = root_of(tmp_path, "attention", recurrent(attention="luong", local="p", local_window=4))
    assert steps(local) == ["Linear", "MatMul", "Mask", "SoftMax", "Multiply", "MatMul"]
    assert "4 keys to each side" in "".join(texts(local))
    with pytest.raises(ArgumentError, match="this RNN has no multi-head attention to draw"):
        draw("heads", tmp_path / "x.svg", recurrent(attention="bahdanau"))
    with pytest.raises(ArgumentError, match="this RNN has no attention to draw"):
        draw("attention", tmp_path / "x.svg", recurrent(attention="none"))
    with pytest.raises(ArgumentError, match="this RNN has no Transformer layer to draw"):
        draw("layer", tmp_path / "x.svg", recurrent())


def test_a_module_s_own_score_scale_and_cap_are_drawn(tmp_path: Path) -> None:
    scaled = MultiHeadAttention(8, 2, score=Gated(4, 4, ScaledDot(0.25)), soft_cap=30.0)
    root = root_of(tmp_path, "attention", scaled)
    assert steps(root) == ["MatMul", "Scale", "Gate", "Soft cap", *LAST]
    assert "× 0.25 (B, 2, Tq, Tk)" in texts(root)
    own = root_of(tmp_path, "attention", MultiHeadAttention(8, 2, score=lambda query, key: -(query @ key.mT).abs()))
    assert steps(own) == ["Score", *LAST]


def test_heads_are_a_stack_between_projections(tmp_path: Path) -> None:
    root = root_of(tmp_path, "heads", MODELS["pre"]())
    assert {"16 → 16", "16 → 8", "2 heads of 8", "1 head of 8", "2 × 8 = 16", "output (B, Tq, 16)"} <= {*texts(root)}
    assert texts(root).count("Linear") == 4 and texts(root).count("Split") == 3
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib["width"] == "300"]
    assert len(boxes) == 2, "as many as heads, at most three"
    assert texts(root_of(tmp_path, "heads", MultiHeadAttention(8, 2, output=None))).count("Linear") == 3


def test_a_layer_has_its_sub_layers_in_order(tmp_path: Path) -> None:
    described = root_of(tmp_path, "layer", transformer(), "run").find(f"{SVG}desc")
    assert described is not None and described.text
    post = ["Self-attention, 3 heads of 4", "Add & norm, 12", "Feed-forward, 12 → 20 → 12", "Add & norm, 12"]
    masked = ["Self-attention, masked, 3 heads of 4", "Add & norm, 12", "Cross-attention, 3 heads of 4", *post[1:]]
    assert f"encoder layer, 2 times: {'; '.join(post)}. decoder layer, 3 times: {'; '.join(masked)}." in described.text
    pre = texts(root_of(tmp_path, "layer", MODELS["pre"](), "run"))
    assert pre.count("Norm") == pre.count("Add") == 5 and "run: pre-norm" in pre
    alone = texts(root_of(tmp_path, "layer", MODELS["causal"]()))
    assert "decoder layer, 2 ×" in alone and "(B, T, 12)" in alone and "memory" not in alone


def test_large_sizes_fit_their_boxes(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = transformer(width=4096, heads=32, feed_forward=16384)
    root = root_of(tmp_path, "layer", model, "run")
    sizes = {element.text: float(element.attrib["font-size"]) for element in root.iter(f"{SVG}text")}
    for text in ("masked, 32 heads of 128", "4,096 → 16,384 → 4,096"):
        assert sizes[text] >= 10 and len(text) * sizes[text] * LETTER <= 152


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.svg, got 'x\.png'"):
        draw("attention", "x.png")
    with pytest.raises(ArgumentError, match="unknown part 'block' \\(known: attention, heads, layer, model\\)"):
        draw("block", tmp_path / "x.svg")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="a drawing of a model needs a model"):
        draw("model", tmp_path / "x.svg")
    with pytest.raises(ArgumentError, match="cannot be written"):
        draw("layer", tmp_path / "nowhere" / "x.svg")


@pytest.mark.parametrize("part", ["attention", "heads", "layer", "model"])
def test_the_documentation_shows_the_figures_of_this_version(tmp_path: Path, part: Any) -> None:
    """The file is what `scripts/draw.py PART --out docs/figures/PART.svg` writes; the model is runs/dates."""
    figure = FIGURES / f"{part}.svg"
    dates = {"width": 128, "feed_forward": 256, "norm": "pre", "position": "rotary", "share_embeddings": "target"}
    model = Transformer(
        TransformerSettings.model_validate({**dates, "encoder_layers": 2, "decoder_layers": 2}), 248, 15
    )
    draw(part, tmp_path / "x.svg", model if part == "model" else None, "dates" if part == "model" else "")
    assert figure.read_text(encoding="utf-8") == (tmp_path / "x.svg").read_text(encoding="utf-8")
    pages = [page.read_text(encoding="utf-8") for page in FIGURES.parent.glob("learn/*.md")]
    alternatives = re.findall(rf"!\[([^\]]+)\]\(\.\./figures/{part}\.svg\)", "".join(pages))
    assert len(alternatives) == 1 and len(alternatives[0]) > len(part)


def test_only_attention_is_tinted_and_inputs_have_the_colors_of_their_roles(tmp_path: Path) -> None:
    tinted = [
        rect for rect in root_of(tmp_path, "layer", None).iter(f"{SVG}rect") if "attention" in rect.attrib["class"]
    ]
    assert len(tinted) == 3, "the encoder's, and two of the decoder"
    root = root_of(tmp_path, "heads", None)
    roles = {text.text: text.attrib["class"] for text in root.iter(f"{SVG}text")}
    assert [roles[letter] for letter in "QKV"] == ["query", "key", "value"]
    lines = [line.attrib["class"].split()[1] for line in root.iter(f"{SVG}polyline")]
    assert [lines.count(role) for role in ("query", "key", "value")] == [3, 3, 3]
    style = next(root.iter(f"{SVG}style")).text or ""
    light, _, dark = style.partition("@media (prefers-color-scheme:dark)")
    for rules, is_dark in ((light, False), (dark, True)):
        assert f".line.key{{stroke:{color('key', dark=is_dark)}}}" in rules
        assert f".attention{{fill:{palette(dark=is_dark)['ramp'][1]};stroke:{color('weight', dark=is_dark)}}}" in rules
    assert ".line.key{stroke-dasharray" in style


def test_parts_are_drawn_of_a_run_or_in_symbols(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=12, heads=2)
    tokenizers = CharTokenizer("abc"), CharTokenizer("012")
    run, file = tmp_path / "small", tmp_path / "part.svg"
    with RunWriter(run) as writer:
        config = RunConfig(model=settings, tokenizers={"source": "char", "target": "char"})
        writer.finish(config, build(settings, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    for part, title in (("attention", "Scaled dot-product attention"), ("layer", "Transformer layers")):
        for options, is_named in (([], False), (["--run", str(run)], True)):
            monkeypatch.setattr("sys.argv", ["draw", part, "--out", str(file), *options])
            main()
            drawn = file.read_text(encoding="utf-8")
            assert f"<title>{title}</title>" in drawn
            assert (">small: " in drawn) is is_named
    monkeypatch.setattr("sys.argv", ["draw", "model", "--out", str(file)])
    with pytest.raises(SystemExit, match="draw: a drawing of a model needs a model"):
        main()
