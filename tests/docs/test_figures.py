"""The live figures of the documentation: they show what attent computes, are moved by hand and by keyboard, and ask nobody for anything."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import attent
from attent.attention.masks import Causal, Prefix, Window
from attent.attention.normalizers import TopK
from attent.attention.positions import Rotary, Sinusoidal
from attent.attention.scores import Additive, Gaussian, General
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.views.pages.page import bundle, web_file

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import site_figures  # noqa: E402 - it needs mkdocs
from figures import record  # noqa: E402 - it needs scikit-learn

ROOT = Path(__file__).parents[2]
DOCS = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
FIGURES = sorted(name for text in DOCS.values() for name in site_figures.PLACE.findall(text))
RECORDED = json.loads(record.RECORDED.read_text(encoding="utf-8"))
WORDS = ["the", "black", "dog", "sings"]
BEGIN, END = 2, 3
ROW = re.compile(r"^\| `figure-(\w+)` \| (\S+\.md) \|", re.MULTILINE)
NUMBER = re.compile(r"[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[−-]\d+)?")
# The place of a figure, without the site around it.
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>figures</title><link rel="stylesheet" href="site.css">
<body data-md-color-scheme="attent" class="md-typeset"><main><h1>Figures</h1>{places}</main>{scripts}</body></html>"""
# Count frames, and those in which an attribute of what is drawn has changed.
FRAMES = """([selector, name]) => {
  const node = document.querySelector(selector), seen = { frames: 0, changed: 0, start: performance.now() };
  let value = node.getAttribute(name);
  const next = () => {
    seen.frames += 1;
    seen.changed += node.getAttribute(name) !== value;
    value = node.getAttribute(name);
    seen.end = performance.now();
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
  globalThis.seen = seen;
}"""
# What is drawn when a handle is dragged.
DRAGGED = [
    ("queries", "q, noir", ["path.value", "transform"]),
    ("scores", "key dog", ["path.value", "transform"]),
    ("regression", "point 5", [".curve.value", "d"]),
]
# What a reader types into the control in focus, by its type or role.
KEYS_OF = {"range": ["ArrowRight"], "full range": ["ArrowLeft"], "select-one": ["ArrowDown"], "checkbox": ["Space"], "button": ["Enter", "ArrowRight"]}
FOCUS = """() => {
  const node = document.activeElement;
  const kind = node.getAttribute("role") || node.type || "other";
  return node.closest(".live") ? (kind === "range" && node.value === node.max ? "full range" : kind) : "";
}"""


def numbers(text: str) -> list[float]:
    return [float(found.replace("−", "-").replace(",", "")) for found in NUMBER.findall(text)]


@pytest.fixture
def opened(window: Any, tmp_path: Path) -> Callable[..., Any]:
    """A function that opens a page with these figures."""

    def open_page(*names: str, **options: Any) -> Any:
        (tmp_path / "tokens.css").write_text(web_file("tokens.css"), encoding="utf-8")
        (tmp_path / "site.css").write_text((ROOT / "docs" / "figures" / "site.css").read_text("utf-8"), "utf-8")
        files = {**{name: site_figures.numbers(name) for name in site_figures.READ}, "figures": site_figures.script()}
        for name, text in files.items():
            (tmp_path / f"{name}.js").write_text(text, encoding="utf-8")
        places = "".join(f'<div class="live-figure" id="figure-{name}"><p>still</p></div>' for name in names)
        page = PAGE.format(places=places, scripts="".join(f'<script src="{name}.js"></script>' for name in files))
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        return window.open(tmp_path / "page.html", **options)

    return open_page


@pytest.fixture(scope="module")
def model() -> Transformer:
    """The translator whose weights pages have."""
    settings = TransformerSettings(
        encoder_layers=1, decoder_layers=1, width=64, feed_forward=128, heads=4, position="sinusoidal", norm="post",
        dropout=0.0, share_embeddings="none", output_bias=False,
    )  # fmt: skip
    with np.load(record.TRANSLATOR, allow_pickle=False) as arrays:
        transformer = Transformer(settings, len(arrays["source"]), len(arrays["target"]))
        transformer.load_state_dict(
            {name: torch.from_numpy(arrays[name]).float() for name in arrays if arrays[name].dtype == np.float16}
        )
    return transformer.eval()


@pytest.fixture(scope="module")
def pieces() -> dict[str, list[str]]:
    """The pieces of source and target by token."""
    return {side: site_figures.translator()[side] for side in ("source", "target")}


@torch.no_grad()
def translate(model: Transformer, source: list[int], has_positions: bool = True) -> tuple[list[int], dict[str, Tensor]]:
    """Return the greedy translation with END, and the weights (H, Tq, Tk) of each attention."""
    positions, model.source_embedding.positions = model.source_embedding.positions, None
    if has_positions:
        model.source_embedding.positions = positions
    try:
        with attent.watch(model.encoder) as encoder_maps:
            memory = model.encode(torch.tensor([source]), torch.tensor([len(source)]))
        # the packed encoder does not report
        tokens = [BEGIN]
        while tokens[-1] != END and len(tokens) < 30:
            tokens.append(int(model.output(model.decode(memory, torch.tensor([tokens])))[0, -1].argmax()))
        with attent.watch(model.decoder) as maps:
            logits = model.output(model.decode(memory, torch.tensor([tokens[:-1]])))[0]
    finally:
        model.source_embedding.positions = positions
    weights = {name.split(".")[-1]: seen.dense()[0] for name, seen in maps.items()}
    weights["encoder"] = next(iter(encoder_maps.values())).dense()[0]
    return tokens[1:], {**weights, "memory": memory.features[0], "logits": logits}


def ids(pieces: dict[str, list[str]], sentence: str) -> list[int]:
    return [pieces["source"].index(f" {word}") for word in sentence.split()]


def text(pieces: dict[str, list[str]], tokens: Iterable[int]) -> str:
    return "".join(pieces["target"][token] for token in tokens).strip()


def cells(view: Any, which: int = 0) -> list[list[str]]:
    """The texts of a matrix by row."""
    script = "(node, which) => [...node.querySelectorAll('.matrix')[which].tBodies[0].rows].map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"
    return view.locator("body").evaluate(script, which)


def settled(view: Any) -> str:
    """The sentence of the figure after the next frames."""
    view.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return view.inner_text(".sum")


def column(view: Any, place: int) -> list[float]:
    return [numbers(found)[-1] for found in view.locator(f".rows tbody tr > :nth-child({place})").all_inner_texts()]


def set_slider(view: Any, place: int, value: float) -> None:
    """Set a slider of the page as a hand would."""
    script = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }"
    view.locator("input[type=range]").nth(place).evaluate(script, value)


def test_each_place_has_a_question_a_function_and_what_it_reads() -> None:
    assert len(FIGURES) == len(set(FIGURES)) == 14
    design = DOCS[ROOT / "docs" / "design-pages.md"]
    rows = dict(ROW.findall(design))
    assert sorted(rows) == FIGURES
    for name, page in rows.items():
        assert f'id="figure-{name}"' in DOCS[ROOT / "docs" / page]
    main = web_file("figures/figures.js")
    assert sorted(word for found in re.findall(r"^const [A-Z]+ = \{ (.+) \};$", main, re.M) for word in found.split(", ")) == FIGURES  # fmt: skip
    assert set().union(*site_figures.READ.values()) < set(FIGURES)


def test_pages_get_the_scripts_that_their_figures_read() -> None:
    class Page:
        def __init__(self, path: str) -> None:
            self.file = type("File", (), {"src_uri": path})

    html = '<div class="live-figure" id="figure-{}"></div>'
    for path, name, scripts in (
        ("learn/heads.md", "heads", ["../figures/translator.js"]),
        ("classify.md", "patches", ["figures/recorded.js"]),
        ("learn/scores.md", "scores", []),
    ):
        page = site_figures.on_page_content(html.format(name), page=Page(path))
        assert re.findall(r'<script src="([^"]+)"></script>', page) == scripts
    assert len(site_figures.numbers("translator")) < 2**19


def test_recorded_weights_are_distributions() -> None:
    for sentence in RECORDED["sentences"]:
        weights = torch.tensor(sentence["weights"])
        assert weights.shape == (len(sentence["attention"]), len(sentence["source"].split()))
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)), atol=1e-3, rtol=0)
    assert [sentence["fixed"] == sentence["right"] for sentence in RECORDED["sentences"]] == [True, False, False, False]
    for digit in RECORDED["digits"]:
        layers = torch.tensor(digit["layers"])
        assert layers.shape == (3, 17)
        torch.testing.assert_close(layers.sum(1), torch.ones(3), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_recorded_weights_are_those_of_the_runs_of_the_course(course: Any, tmp_path: Path, monkeypatch: Any) -> None:
    course(tmp_path)
    monkeypatch.chdir(tmp_path)
    for recorded, run in zip(RECORDED["sentences"], record.sentences(Path("runs")), strict=True):
        assert (recorded["source"], recorded["right"]) == (run["source"], run["right"])
        # as far as pages are compared on other processors
        np.testing.assert_allclose(recorded["weights"], run["weights"], atol=0.3)
    weights = record.translator(Path("runs/phrases"))
    with np.load(record.TRANSLATOR, allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {name: array.shape for name, array in weights.items()}
        assert arrays["source"].tolist() == weights["source"].tolist()


@pytest.mark.slow
def test_the_translator_in_the_page_computes_what_python_does(
    window: Any, tmp_path: Path, model: Transformer, pieces: dict[str, list[str]]
) -> None:
    (tmp_path / "page.html").write_text('<!doctype html><meta charset="utf-8"><title>x</title>', encoding="utf-8")
    view = window.open(tmp_path / "page.html")
    view.add_script_tag(content=bundle("figures/translator"))
    view.add_script_tag(content=site_figures.numbers("translator"))
    view.evaluate("() => { globalThis.translator = new module_figures_translator.Translator(ATTENT_FIGURES.translator); }")
    draw = random.Random(0)
    words = [piece.strip() for piece in pieces["source"] if piece]
    sentences = ["the black dog sings", *(" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(40))]
    for sentence in sentences:
        for has_positions in (True, False):
            script = """([words, has]) => { const { ids, encoded, decoded } = translator.translate(words, has);
              return { ids, encoder: encoded.self.heads, memory: encoded.memory.list(), self_attention: decoded.self.heads, cross_attention: decoded.cross.heads, logits: decoded.logits.list() }; }"""
            shown = view.evaluate(script, [sentence.split(), has_positions])
            tokens, expected = translate(model, ids(pieces, sentence), has_positions)
            assert shown.pop("ids") == tokens, sentence
            for name, values in shown.items():
                torch.testing.assert_close(torch.tensor(values, dtype=torch.float32), expected[name], atol=1e-4, rtol=1e-4)


SCORES = {
    "dot": "dot",
    "scaled_dot": "scaled_dot",
    "cosine": "cosine",
    "gaussian": Gaussian(1.0),
    "general": General(2, 2),
    "additive": Additive(2, 2, 2, bias=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_scores_and_weights_are_attents_after_each_move(opened: Any, name: str) -> None:
    view, score = opened("scores"), SCORES[name]
    with torch.no_grad():
        if isinstance(score, General):
            score.weight.copy_(torch.tensor([[0.0, -1], [1, 0]]))
        if isinstance(score, Additive):
            for parameter, value in zip(score.parameters(), SAME, strict=True):
                parameter.copy_(value.reshape(parameter.shape))
    view.select_option("select", name)
    query, keys = [1.6, 0.8], [[-0.9, 0.5], [2.0, 0.2], [0.3, 2.0], [-0.7, -1.7]]
    for press in (None, ("q, noir", "ArrowLeft", query, 0, -0.1), ("dog", "ArrowUp", keys[2], 1, 0.1), ("the", "ArrowLeft", keys[0], 0, -0.1)):
        if press:
            label, key, vector, axis, step = press
            for _ in range(4):
                view.locator(f".handle[aria-label*='{label} (']").press(key)
                vector[axis] += step
        line = settled(view)
        k = torch.tensor(keys)
        context, seen = attent.attend(torch.tensor([query]), k, k, score=score, return_map=True)
        np.testing.assert_allclose(column(view, 2), seen.scores()[0].detach(), atol=0.0051)
        np.testing.assert_allclose(column(view, 3), seen.dense()[0].detach(), atol=0.0051)
        np.testing.assert_allclose(numbers(line.split(" = ")[2].split(").")[0]), context[0].detach(), atol=0.0051)


# the parameters of the additive score: W₁ and W₂ are the identity, v = (2, 2)
SAME = (torch.eye(2), torch.eye(2), torch.tensor([2.0, 2.0]))


@pytest.mark.slow
def test_a_vector_follows_the_pointer_and_leaves_a_ghost(opened: Any) -> None:
    view = opened("queries")
    handle = view.locator(".handle[aria-label*='q, noir']")
    box = handle.locator("path").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    scale = view.locator(".plane").bounding_box()["width"] / 360
    view.mouse.move(x, y)
    view.mouse.down()
    view.mouse.move(x - 68 * scale, y + 34 * scale, steps=5)
    view.mouse.up()
    settled(view)
    moved, ghost = numbers(handle.get_attribute("aria-label")), view.locator("line.query.ghost")
    np.testing.assert_allclose(moved, [0.6, 0.3], atol=0.02)
    assert [float(ghost.get_attribute(name)) for name in ("x2", "y2")] == pytest.approx([180 + 68 * 1.6, 180 - 68 * 0.8], abs=0.06)
    context = attent.attend(torch.tensor([moved]), KEYS, KEYS, score="dot")
    np.testing.assert_allclose(numbers(view.inner_text(".sum"))[-2:], context[0], atol=0.02)


KEYS = torch.tensor([[-0.9, 0.5], [2, 0.2], [0.3, 2], [-0.7, -1.7]])


@pytest.mark.slow
def test_normalizers_and_temperature_give_attents_weights(opened: Any) -> None:
    view = opened("normalizers")
    scores = [0.5, 2.0, 1.2, -1.0]
    for name in ("softmax", "entmax15", "sparsemax", "top_k", "hard", "sigmoid", "identity"):
        view.select_option("select", name)
        for temperature, score in ((1.0, 2.0), (0.3, 2.0), (3.0, 0.1)):
            set_slider(view, 0, temperature)
            set_slider(view, 2, score)
            scores[1] = score
            line = settled(view)
            normalizer = TopK(2) if name == "top_k" else name
            key = torch.tensor(scores)[:, None] / temperature
            _, seen = attent.attend(torch.ones(1, 1), key, key, score="dot", normalizer=normalizer, return_map=True)
            weights = seen.dense()[0]
            np.testing.assert_allclose(column(view, 3), weights, atol=0.0051)
            assert numbers(line)[0] == pytest.approx(weights.sum().item(), abs=0.0051)
            zeros = int((weights == 0).sum())
            assert (f"{zeros} of 4 weights are exactly 0" if zeros else "no weight is exactly 0") in line


@pytest.mark.slow
def test_masks_hide_what_attents_masks_hide(opened: Any, model: Transformer, pieces: dict[str, list[str]]) -> None:
    view = opened("masks")
    tokens, _ = translate(model, ids(pieces, "the black dog sings"))
    layer = model.decoder.layers[0].self_attention
    with torch.no_grad():
        y = model.target_embedding(torch.tensor([[BEGIN, *tokens[:-1]]]))
        for name, size, mask in (
            ("causal", 1, Causal()),
            ("none", 1, None),
            ("window", 1, Window(1, 1)),
            ("window", 0, Window(0, 0)),
            ("causal and window", 2, Causal() & Window(2, 0)),
            ("prefix", 2, Prefix(2)),
        ):
            view.select_option("select", name)
            set_slider(view, 0, size)
            settled(view)
            _, seen = layer(y, mask=mask, return_map=True)
            expected = seen.dense()[0, 0]
            for shown, row in zip(cells(view), expected, strict=True):
                np.testing.assert_allclose([0 if cell == "–" else float(cell) for cell in shown], row, atol=0.0051)
                assert all(cell != "–" or weight == 0 for cell, weight in zip(shown, row.tolist(), strict=True))
    view.select_option("select", "none")
    for key in range(5):
        view.locator("td[role=gridcell]").nth(key).press("Enter")
    assert settled(view) == "le may see nothing: all its weights are 0."
    assert cells(view)[0] == ["–"] * 5


@pytest.mark.slow
def test_figures_of_typed_sentences_show_the_translators_weights(
    opened: Any, model: Transformer, pieces: dict[str, list[str]]
) -> None:
    sentence = "the horse sees a small cat"
    tokens, expected = translate(model, ids(pieces, sentence))
    with torch.no_grad():
        x = model.source_embedding(torch.tensor([ids(pieces, sentence)]))[0]

    def shown(view: Any, which: int = 0) -> Tensor:
        return torch.tensor([[float(cell) for cell in row] for row in cells(view, which)])

    view = opened("projections")
    view.fill("input[type=text]", sentence)
    view.select_option("select", "2")
    settled(view)
    torch.testing.assert_close(shown(view, 0), (x @ x.T).softmax(-1), atol=0.0051, rtol=0)
    torch.testing.assert_close(shown(view, 1), expected["encoder"][2], atol=0.0051, rtol=0)

    view = opened("seeing")
    view.fill("input[type=text]", sentence)
    for name, weights in (("encoder", "encoder"), ("decoder", "self_attention"), ("cross", "cross_attention")):
        for head in (0, 3):
            view.click(f"button[aria-label='{name}, head {head}']")
            settled(view)
            torch.testing.assert_close(shown(view), expected[weights][head], atol=0.0051, rtol=0)

    view = opened("heads")
    view.fill("input[type=text]", sentence)
    view.locator(".drawing .board").first.locator("button").nth(2).click()
    line = settled(view)
    for head in (0, 1):
        weight, key = expected["cross_attention"][head, 2].max(0)
        assert f"⁨{sentence.split()[key]}⁩ {weight:.2f}" in line
    labels = [pieces["target"][token].strip() or "</s>" for token in tokens]
    assert view.locator(".board").first.locator("button").all_inner_texts() == labels


@pytest.mark.slow
def test_the_vector_of_a_word_in_context(opened: Any, model: Transformer, pieces: dict[str, list[str]]) -> None:
    view = opened("context")

    @torch.no_grad()
    def vectors(sentence: str, word: int) -> list[Tensor]:
        tokens = torch.tensor([ids(pieces, sentence)])
        embedded = model.source_embedding(tokens)
        added = model.encoder.layers[0].self_attention(embedded)
        memory = model.encode(tokens, torch.tensor([tokens.shape[1]]))
        return [each[0, word] for each in (embedded, added, memory.features)]

    for sentence in ("the black cat sings", "the black horse sings", "the black dogs sing"):
        view.fill("input[type=text]", sentence)
        for word in (0, 1):
            view.locator(".board button").nth(word).click()
            line = settled(view)
            pairs = zip(vectors("the black dog sings", word), vectors(sentence, word), strict=True)
            cosines = [torch.cosine_similarity(*pair, dim=0).item() for pair in pairs]
            np.testing.assert_allclose(column(view, 2), cosines, atol=0.0051)
            assert line.endswith(f"Translation: {text(pieces, translate(model, ids(pieces, sentence))[0])}")
    view.fill("input[type=text]", "the black zebra <img src=x>")
    assert "does not know “zebra”" in view.inner_text(".note") and not view.locator("img").count()


@pytest.mark.slow
def test_positions_matter_by_their_distance_alone(opened: Any, model: Transformer, pieces: dict[str, list[str]]) -> None:
    view = opened("positions")
    encoding = Sinusoidal(64)(torch.zeros(1, 130, 64))[0]
    ones, turn = torch.ones(1, 1, 1, 16), Rotary().rotate
    for start, distance in ((0, 5), (0, 1), (37, 1), (80, 40)):
        set_slider(view, 0, start)
        set_slider(view, 1, distance)
        added, turned = (float(found) for found in re.findall(r"\d\.\d{3}", settled(view)))
        assert added == pytest.approx((encoding[start] @ encoding[start + distance]).item() / 32, abs=0.00051)
        query = turn(ones, torch.tensor([[start + 5]]))
        key = turn(ones, torch.tensor([[start + distance]]))
        assert turned == pytest.approx((query * key).sum().item() / 16, abs=0.00051)
    for has_positions in (True, False):
        view.set_checked("input[type=checkbox]", has_positions)
        lines = view.inner_text(".said").split("\n")
        for line, sentence in zip(lines, ("the dog sees the cat", "the cat sees the dog"), strict=True):
            tokens, _ = translate(model, ids(pieces, sentence), has_positions)
            assert line == f"{sentence} → {text(pieces, tokens[:-1])}"
    assert lines[0].split(" → ")[1] == lines[1].split(" → ")[1]


@pytest.mark.slow
def test_the_whole_transformer_step_by_step(opened: Any, model: Transformer, pieces: dict[str, list[str]]) -> None:
    view = opened("transformer")
    tokens, expected = translate(model, ids(pieces, "the black dog sings"))
    labels = ["le", "chien", "noir", "chante", "</s>"]
    assert "Given" not in settled(view)
    for _ in range(3):
        view.click("button:text('next')")
    for step, label in enumerate(labels):
        for part in ("self_attention", "cross_attention"):
            line = settled(view)
            weight = expected[part][0, step].max().item()
            assert line.startswith(f"Given {' '.join(['<s>', *labels[:step]])}: to write {label}, ")
            # weights of at least a hundredth have two decimals
            assert f"{weight:.2f}" in line
            view.click("button:text('next')")
        line = settled(view)
        probability = expected["logits"][step].softmax(-1).max().item()
        assert f"⁨{label}⁩ {probability:.2f}" in line and line.endswith(f"is written: {' '.join(labels[: step + 1])}")
        view.click("button:text('next')")
    assert text(pieces, tokens[:-1]) == " ".join(labels[:-1])
    assert "4 vectors of 64 numbers" in settled(view), "it begins again"


@pytest.mark.slow
def test_lookup_and_regression_agree_with_python(opened: Any) -> None:
    view = opened("lookup")
    grades, salaries = [3.0, 3.4, 3.5, 3.6, 4.0], [32_000, 36_000, 37_000, 38_500, 44_000]
    bandwidths = {2: 0.02, 4: 0.1, 6: 0.3, 8: 1.0, 11: 20.0}
    for query in (3.5, 3.45, 2.8):
        set_slider(view, 0, query)
        for step, options in (
            (0, {}),
            (1, {"method": "nearest"}),
            *((step, {"method": "soft", "bandwidth": bandwidth}) for step, bandwidth in bandwidths.items()),
        ):
            set_slider(view, 1, step)
            line = settled(view)
            answer = attent.lookup(query, grades, salaries, **options)
            if step == 0 and query != 3.5:
                assert line == "missing: no such key"
            else:
                assert numbers(line)[-1] == pytest.approx(answer.value, abs=0.51)
                np.testing.assert_allclose(column(view, 3), answer.weights.dense()[0], atol=0.0051)

    view = opened("regression")
    points = np.array(json.loads(f"[{re.search(r'^const POINTS = .(.+).;$', web_file('figures/curves.js'), re.M)[1]}]"))  # pyright: ignore[reportOptionalSubscript]
    view.locator(".handle[aria-label^='point 8']").press("ArrowUp")
    points[7, 1] += 1
    for bandwidth in (0.05, 0.2, 1.5):
        set_slider(view, 0, bandwidth)
        expected = attent.AttentionRegressor(bandwidth=bandwidth).fit(points[:, :1], points[:, 1]).predict([[3.5]])[0]
        assert numbers(settled(view))[1] == pytest.approx(expected, abs=0.0051)


@pytest.mark.slow
def test_recorded_steps_and_patches_are_shown(opened: Any) -> None:
    view = opened("recurrent")
    for which, recorded in enumerate(RECORDED["sentences"]):
        view.select_option("select", str(which))
        for step, weights in enumerate(recorded["weights"]):
            set_slider(view, 0, step)
            line = settled(view)
            assert line.startswith(f"Step {step + 1}: with attention, the network writes {recorded['attention'][step]} ")
            key = int(np.argmax(weights))
            assert f"⁨{recorded['source'].split()[key]}⁩ {max(weights):.2f}" in line
            wrong = [word for word, right in zip(recorded["fixed"][: step + 1], recorded["right"], strict=False) if word != right]  # fmt: skip
            assert view.locator("del").all_inner_texts() == wrong
    view = opened("patches")
    view.select_option("select", "3")
    for layer in range(3):
        set_slider(view, 0, layer)
        view.locator(".patch").nth(9).click()
        weight = RECORDED["digits"][3]["layers"][layer][10]
        assert f"the class token gives it {weight:.2f} of its attention" in settled(view)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "narrow"])
def test_figures_have_no_serious_faults_and_fit(opened: Any, window: Any, size: tuple[int, int], dark: bool) -> None:
    view = opened(*FIGURES, size=size, dark=dark)
    assert view.locator(".live").count() == len(FIGURES)
    assert not window.serious_faults(view)
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]
    for name in FIGURES:
        assert view.locator(f"#figure-{name} .controls > *").count() <= 3
        assert view.locator(f"#figure-{name} > p").inner_text() == "still"
        window.picture(view, f"figures-{'dark' if dark else 'light'}-{size[0]}", whole=True)
    assert all(address.startswith("file:") for address in window.requests)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_moved_by_the_keyboard_alone(opened: Any, name: str) -> None:
    view = opened(name)

    def shown() -> str:
        return settled(view) + view.locator(".drawing").inner_text()

    before, kinds, changed = shown(), list[str](), set[str]()
    for _ in range(20):
        view.keyboard.press("Tab")
        kind = view.evaluate(FOCUS)
        if not kind:
            break
        kinds.append(kind)
        assert view.evaluate("document.activeElement.matches(':focus-visible')")
        if kind == "text":
            view.keyboard.press("End")
            view.keyboard.type(" often")
        for key in KEYS_OF.get(kind, ["ArrowRight"] if kind != "text" else []):
            view.keyboard.press(key)
        if (now := shown()) != before:
            before = now
            changed.add(kind)
    else:
        pytest.fail("the focus does not leave the figure")
    controls = {"range", "full range", "select-one", "checkbox", "text", "button", "application", "gridcell"}
    assert kinds and set(kinds) <= controls
    # a cell that is in focus already is not chosen again
    assert set(kinds) - {"gridcell"} <= changed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "handle", "drawn"), DRAGGED)
def test_dragging_redraws_once_a_frame_and_at_least_fifty_times_a_second(
    opened: Any, name: str, handle: str, drawn: list[str]
) -> None:
    view = opened(name)
    rates = []
    for _ in range(3):
        box = view.locator(f".handle[aria-label*='{handle}'] path").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        view.mouse.move(x, y)
        view.mouse.down()
        view.evaluate(FRAMES, drawn)
        for lap in range(4):
            view.mouse.move(x + (0 if lap % 2 else 60), y - (0 if lap % 2 else 40), steps=60)
        seen = view.evaluate("seen")
        view.mouse.up()
        rates.append((seen["frames"] / (seen["end"] - seen["start"]) * 1000, seen["changed"] / seen["frames"]))
    assert max(rate for rate, _ in rates) >= 50, rates
    assert max(share for _, share in rates) > 0.8, rates
    view.evaluate("""() => { globalThis.count = 0;
      new MutationObserver((records) => { count += records.length; }).observe(document.querySelector('.sum'), { childList: true }); }""")
    view.evaluate("""() => { const handle = document.querySelector('.handle');
      for (let turn = 0; turn < 20; turn += 1) handle.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' })); }""")
    settled(view)
    assert view.evaluate("count") == 1
