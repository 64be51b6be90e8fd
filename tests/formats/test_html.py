"""A run as one page: what it holds, what it refuses, and what it leaves alone."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, RunError, UnknownNameError
from attent.formats import html as pages
from attent.formats.exporting import export
from attent.formats.html import page_of, payload, write_page
from attent.models.build import build
from attent.models.settings import EncoderSettings
from attent.runs.config import RunConfig
from attent.runs.folder import Run, read
from attent.tasks.classification.inputs import Inputs, PictureInputs, VectorInputs
from attent.text.tokenizer import WordTokenizer
from attent.text.tokenizers import SentencePieceTokenizer, UnigramTokenizer

HOSTILE = (
    "</script><script>throw 1</script>", "<!--", "<img src=x onerror=alert(1)>", "{{script}}", "\u2028", "\ud800",
    "]]>", "&lt;", "__proto__", "constructor", "</title>",
)  # fmt: skip


def parts(page: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the description and the packs of a page."""
    description = re.search(r'<script type="application/json" id="description">(.*?)</script>', page, re.DOTALL)
    assert description
    packs = re.findall(r'<script type="text/plain" data-pack="(\w+)">([^<]*)</script>', page)
    return json.loads(description[1]), {name: zlib.decompress(base64.b64decode(text)) for name, text in packs}


def test_a_page_has_the_weights_rounded_and_tied_ones_once(run: Run, make_run: Any) -> None:
    description, packs = parts(page_of(run, "run"))
    weights = np.frombuffer(packs["weights"], np.uint8).reshape(2, -1)[::-1].T.tobytes()
    parameters = dict(run.model.named_parameters())
    assert len(weights) == 2 * sum(parameter.numel() for parameter in parameters.values())
    for each in description["tensors"]:
        tensor = run.model.state_dict()[each["name"]]
        count = tensor.numel()
        stored = np.frombuffer(weights, "<f2", count, each["offset"]).reshape(each["shape"])
        assert np.array_equal(stored, tensor.numpy().astype(np.float16))
    offsets = {tensor["name"]: tensor["offset"] for tensor in description["tensors"]}
    assert offsets["to_logits.weight"] == offsets["target_embedding.tokens.weight"]


def test_in_8_bits_each_row_has_its_own_scale(run: Run) -> None:
    description, packs = payload(run, "run", "int8")
    kinds = {tensor["kind"] for tensor in description["tensors"]}
    assert kinds == {"int8", "float16"}
    for each in description["tensors"]:
        if each["kind"] == "float16":
            assert len(each["shape"]) == 1
            continue
        rows, columns = each["shape"]
        codes = np.frombuffer(packs["weights"].tobytes(), np.int8, rows * columns, each["offset"]).reshape(
            rows, columns
        )
        scales = np.frombuffer(packs["weights"].tobytes(), "<f4", rows, each["offset"] + codes.size)
        tensor = run.model.state_dict()[each["name"]].numpy()
        assert np.abs(codes * scales[:, None] - tensor).max() <= scales.max() / 2 + 1e-7
        assert (np.abs(codes).max(1)[np.abs(tensor).max(1) > 0] == 127).all()


def test_a_page_of_zeros_stays_zero(run: Run) -> None:
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    _, packs = payload(run, "run", "int8")
    assert not packs["weights"].any()


def test_only_its_own_script_and_style_may_run(run: Run) -> None:
    page = page_of(run, "run")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src"}
    assert rules["img-src"] == "data: blob:"
    assert "unsafe" not in policy
    for element in ("script", "style"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{element}-src"] == f"'sha256-{digest}'"
    # the name of SVG, which nothing is fetched from
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg\b)", page)


def hostile_run() -> Run:
    tokenizer = WordTokenizer([*HOSTILE, "[MASK]", " the"])
    settings = EncoderSettings(layers=1, width=8, feed_forward=8, heads=2)
    sizes = (tokenizer.size + 1, tokenizer.size)
    torch.manual_seed(0)
    config = RunConfig(task="fill-mask", tokenizers={"text": "word"}, sizes=sizes, model=settings)
    return Run(config, build(settings, *sizes).eval(), {"text": tokenizer}, {})


def test_hostile_words_names_and_examples_stay_text() -> None:
    name = '</title><script>throw 1</script>"'
    page = page_of(hostile_run(), name, examples=HOSTILE[:5])
    description, packs = parts(page)
    assert description["tokenizers"]["text"]["entries"] == [*HOSTILE, "[MASK]", " the"]
    assert description["examples"] == list(HOSTILE[:5])
    assert list(packs) == ["weights"]
    assert page.count("<script") == 3
    assert html.escape(Path(name).name) in page
    assert "<!--" not in page.replace("<!DOCTYPE", "")


@pytest.mark.slow
def test_hostile_words_stay_text_in_a_browser(window: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page_of(hostile_run(), "<b>run</b>", examples=HOSTILE[:5]), encoding="utf-8")
    page = window.open(file)
    entries = page.evaluate(
        "() => JSON.parse(document.getElementById('description').textContent).tokenizers.text.entries.length"
    )
    assert entries == len(HOSTILE) + 2
    assert page.locator("script").count() == 3
    assert [address for address in window.requests if not address.startswith("file:")] == []


def test_a_page_replaces_an_older_one_and_nothing_else(run_folder: Path, tmp_path: Path) -> None:
    page = export(run_folder, "html", tmp_path / "new" / "run.html")
    assert page == tmp_path / "new" / "run.html"
    first = page.read_bytes()
    assert write_page(run_folder, page, quantization="int8").stat().st_size < len(first)
    second = tmp_path / "other.html"
    second.write_text("<!DOCTYPE html><title>mine</title>", encoding="utf-8")
    with pytest.raises(RunError, match=r"other.html already exists and is not the page of a run"):
        write_page(run_folder, second)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match="already exists and is not the page of a run"):
        write_page(run_folder, tmp_path / "folder.html")
    with pytest.raises(RunError, match="page"):
        write_page(run_folder, second / "page.html")
    assert second.read_text(encoding="utf-8").endswith("mine</title>")


def test_the_page_lies_in_the_run_unless_a_file_is_named(make_run: Any) -> None:
    folder = make_run(encoder_layers=1)
    assert export(folder, "html") == folder / "export" / "page.html"
    (folder / "export" / "page.html").unlink()
    (folder / "export" / "page.html").symlink_to(folder / "config.json")
    with pytest.raises(RunError, match="symbolic link"):
        export(folder, "html")


def test_what_a_page_cannot_be_is_said_before_anything_is_written(
    run_folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: Any
) -> None:
    with pytest.raises(ArgumentError, match=r"a page's name must end in .html, got"):
        write_page(run_folder, tmp_path / "page.txt")
    with pytest.raises(UnknownNameError, match="unknown quantization of a page 'int4'"):
        write_page(run_folder, tmp_path / "page.html", quantization="int4")
    monkeypatch.setattr(pages, "LARGEST", 100)
    with pytest.raises(ArgumentError, match="which does not compute weights of 0 MiB, only 0 MiB"):
        write_page(run_folder, tmp_path / "page.html")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    for config, message in (
        ({"task": "answer"}, "which does not compute runs of answer"),
        ({"task": "look-up"}, "which does not compute runs of look-up"),
    ):
        changed = Run(run.config.model_copy(update=config), run.model, run.tokenizers, {})
        with pytest.raises(ArgumentError, match=message):
            page_of(changed, "run")
    changed = run.config.model_copy(update={"task": "text-generation", "corpus": {"lines": {"packing": 3}}})
    with pytest.raises(RunError, match="the settings of its corpus cannot be used"):
        page_of(Run(changed, run.model, run.tokenizers, {}), "run")
    sentences = read(make_run("rnn", sentences="vectors", sentence_ends=(4,)))
    with pytest.raises(ArgumentError, match="which does not compute vectors of sentences"):
        page_of(sentences, "run")
    with pytest.raises(ArgumentError, match=r"which does not compute a decoder with a recurrent unit \(ssru\)"):
        page_of(read(make_run("transformer", self_attention="ssru")), "run")

    class Own(torch.nn.Module):
        pass

    run.model.encoder.layers[0].self_attention.score = Own()
    with pytest.raises(ArgumentError, match="which does not compute the score Own"):
        page_of(run, "run")


def test_tokenizers_and_vectors_that_it_does_not_read_are_refused(run: Run) -> None:
    model = UnigramTokenizer.learn(["the dog", "the cat sat"] * 5, 280).model
    foreign = SentencePieceTokenizer(model, ["a", "b"])
    with pytest.raises(ArgumentError, match="which does not compute a SentencePieceTokenizer"):
        page_of(Run(run.config, run.model, {"source": foreign, "target": foreign}, {}), "run")
    settings = EncoderSettings(layers=1, width=8, feed_forward=8, heads=2, input="vectors", cls=True)
    inputs = Inputs(labels=("a", "b"), inputs=VectorInputs(mean=(0.0,), deviation=(1.0,)))
    config = RunConfig(task="classify", tokenizers={}, files=("inputs.json",), sizes=(1, 2), model=settings)
    with pytest.raises(ArgumentError, match="which does not compute sequences of vectors"):
        page_of(Run(config, build(settings, 1, 2), {}, {"inputs.json": inputs.model_dump_json()}), "run")


def test_pictures_are_examples_of_a_page() -> None:
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    inputs = PictureInputs(height=8, width=8, colours="grey", patch=4, mean=(0.3,), deviation=(0.4,))
    settings = EncoderSettings(layers=1, width=8, feed_forward=8, heads=2, input="vectors", cls=True)
    files = {"inputs.json": Inputs(labels=("a", "b"), inputs=inputs).model_dump_json()}
    config = RunConfig(
        task="classify", tokenizers={}, files=("inputs.json",), sizes=(16, 2), model=settings,
        corpus={"images": {"source": "digits"}},
    )  # fmt: skip
    run = Run(config, build(settings, 16, 2).eval(), {}, files)
    description, packs = payload(run, "run")
    assert description["examples"] == {"count": 10, "height": 8, "width": 8, "channels": 1}
    assert packs["examples"].shape == (10, 8, 8, 1)
    assert description["picture"]["grid"] == (2, 2)


def test_settings_have_parts_under_their_own_names(make_run: Any) -> None:
    for changes, score in (({"score": "bahdanau"}, "additive"), ({"kind": "rnn", "attention": "luong"}, "general")):
        description, _ = payload(read(make_run(**changes)), "run")
        assert description["settings"]["score"] == score
        assert description["settings"]["normalizer"] == "softmax"
