"""The places of live figures in the documentation, the hook that fills them, and what is recorded for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attent.views.pages.page import web_file

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import site_figures
from figures import record

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = sorted(
    name for page in DOCS.rglob("*.md") for name in site_figures.PLACE.findall(page.read_text(encoding="utf-8"))
)
RECORDED = json.loads(record.RECORDED.read_text(encoding="utf-8"))
# A row of the table of questions.
ROW = re.compile(r"^\| `figure-(\w+)` \| (\S+\.md) \| [A-Z].+\? \| .+ \|$", re.MULTILINE)


def test_each_place_has_a_question_a_function_and_what_it_reads() -> None:
    assert len(FIGURES) == len(set(FIGURES)) == 14
    rows = dict(ROW.findall((DOCS / "design-pages.md").read_text(encoding="utf-8")))
    assert sorted(rows) == FIGURES
    for name, page in rows.items():
        assert name in site_figures.PLACE.findall((DOCS / page).read_text(encoding="utf-8"))
    lists = re.findall(r"^const [A-Z]+ = \{ (.+) \};$", web_file("figures/figures.js"), re.MULTILINE)
    assert sorted(name for names in lists for name in names.split(", ")) == FIGURES
    assert set().union(*site_figures.READ.values()) < set(FIGURES)


@pytest.mark.parametrize(
    ("path", "name", "scripts"),
    [
        ("learn/heads.md", "heads", ["../figures/translator.js"]),
        ("classify.md", "patches", ["figures/recorded.js"]),
        ("learn/scores.md", "scores", []),
    ],
)
def test_pages_get_the_scripts_that_their_figures_read(path: str, name: str, scripts: list[str]) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=path))
    html = site_figures.on_page_content(f'<div class="live-figure" id="figure-{name}"></div>', page=page)
    assert re.findall(r'<script src="([^"]+)"></script>', html) == scripts


def test_figures_and_what_they_read_are_small_and_ask_nobody() -> None:
    assert len(site_figures.script()) < 2**17 and len(site_figures.numbers("translator")) < 2**19
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\bfetch\(|innerHTML", site_figures.script())


def test_recorded_weights_are_distributions() -> None:
    for sentence in RECORDED["sentences"]:
        weights = torch.tensor(sentence["weights"])
        assert weights.shape == (len(sentence["attention"]), len(sentence["source"].split()))
        assert sentence["attention"] == sentence["right"]
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)), atol=1e-3, rtol=0)
    assert [sentence["fixed"] == sentence["right"] for sentence in RECORDED["sentences"]] == [True, False, False, False]
    for number, digit in enumerate(RECORDED["digits"]):
        layers = torch.tensor(digit["layers"])
        assert layers.shape == (3, 17) and np.shape(digit["pixels"]) == (8, 8) and digit["label"] == str(number)
        torch.testing.assert_close(layers.sum(1), torch.ones(3), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_recorded_weights_are_those_of_the_runs_of_the_course(
    course: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course(tmp_path)
    monkeypatch.chdir(tmp_path)
    for recorded, computed in zip(RECORDED["sentences"], record.sentences(Path("runs")), strict=True):
        assert (recorded["source"], recorded["right"]) == (computed["source"], computed["right"])
        # as far as pages are compared on other processors
        np.testing.assert_allclose(recorded["weights"], computed["weights"], atol=0.3)
    arrays = record.translator(Path("runs/phrases"))
    with np.load(record.TRANSLATOR, allow_pickle=False) as recorded:
        assert recorded["weights"].shape == arrays["weights"].shape
        assert json.loads(str(recorded["description"])) == json.loads(str(arrays["description"]))
