"""Live figures on a page of their own, and the translator whose weights they have, in Python."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _live_engine import stored
from torch import Tensor

import attent
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.text.tokenizer import SPECIALS
from attent.views.pages.page import web_file

pytest.importorskip("mkdocs", reason="mkdocs is not installed")

import site_figures

ROOT = Path(__file__).parents[2]
BEGIN, END, LONGEST = 2, 3, 30
NUMBER = re.compile(r"[−-]?\d+(?:,\d{3})*(?:\.\d+)?")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>figures</title>
<link rel="stylesheet" href="site.css"><body data-md-color-scheme="attent" class="md-typeset"><main><h1>Figures</h1>
{places}</main>{scripts}</body></html>"""
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SLIDE = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }"
CELLS = """(body, which) => [...body.querySelectorAll(".matrix")[which].tBodies[0].rows]
  .map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"""


class Figure:
    """A page with live figures, as a reader sees it.

    Args:
        view: Playwright's page.
    """

    def __init__(self, view: Any) -> None:
        self.view = view

    @property
    def line(self) -> str:
        """The sentence below the first figure, once it is drawn."""
        self.view.evaluate(FRAMES)
        return self.view.inner_text(".sum")

    @staticmethod
    def numbers(text: str) -> list[float]:
        """Return the numbers in a text."""
        return [float(number.replace("−", "-").replace(",", "")) for number in NUMBER.findall(text)]

    def column(self, index: int) -> list[float]:
        """Return the last number in each row of a column of the keys, from 1."""
        texts = self.view.locator(f".rows tbody tr > :nth-child({index})").all_inner_texts()
        return [self.numbers(text)[-1] for text in texts]

    def cells(self, index: int = 0) -> list[list[str]]:
        """Return the texts of a matrix by row."""
        return self.view.locator("body").evaluate(CELLS, index)

    def weights(self, index: int = 0) -> Tensor:
        """Return the numbers of a matrix; 0 for hidden pairs."""
        return torch.tensor([[0.0 if cell == "–" else float(cell) for cell in row] for row in self.cells(index)])

    def slide(self, index: int, value: float) -> None:
        """Set a slider of the page as a hand would."""
        self.view.locator("input[type=range]").nth(index).evaluate(SLIDE, value)

    def type(self, sentence: str) -> None:
        """Replace the sentence of the figure."""
        self.view.fill("input[type=text]", sentence)

    def middle(self, handle: str) -> tuple[float, float]:
        """Return the middle of what is dragged, by its name, in pixels of the window."""
        box = self.view.locator(f".handle[aria-label*='{handle}'] path").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.fixture
def figure(window: Any, tmp_path: Path) -> Callable[..., Figure]:
    """A function that opens a page with these figures, without the site around them."""

    def open_page(*names: str, **options: Any) -> Figure:
        scripts = {**{name: site_figures.numbers(name) for name in site_figures.READ}, "figures": site_figures.script()}
        files = {f"{name}.js": script for name, script in scripts.items()}
        files["tokens.css"] = web_file("tokens.css")
        files["site.css"] = (ROOT / "docs" / "figures" / "site.css").read_text(encoding="utf-8")
        elements = "".join(f'<div class="live-figure" id="figure-{name}"><p>still</p></div>' for name in names)
        tags = "".join(f'<script src="{name}.js"></script>' for name in scripts)
        files["page.html"] = PAGE.format(places=elements, scripts=tags)
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return Figure(window.open(tmp_path / "page.html", **options))

    return open_page


class Course:
    """The course's translator with the weights that pages have.

    Args:
        data: what `site_figures.translator` gives pages.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        description = data["description"]
        entries = [description["tokenizers"][side]["entries"] for side in ("source", "target")]
        self.source, self.target = ([""] * SPECIALS + texts for texts in entries)
        settings = TransformerSettings(
            encoder_layers=1,
            decoder_layers=1,
            width=64,
            feed_forward=128,
            heads=4,
            position="sinusoidal",
            norm="post",
            dropout=0.0,
            share_embeddings="none",
            output_bias=False,
        )
        self.model = Transformer(settings, len(self.source), len(self.target)).eval()
        weights = np.frombuffer(b64decode(data["weights"]), np.uint8)
        self.model.load_state_dict(stored(description, weights))

    def ids(self, sentence: str) -> list[int]:
        """Return the tokens of a sentence."""
        return [self.source.index(f" {word}") for word in sentence.split()]

    def text(self, tokens: list[int]) -> str:
        """Return the text of a translation's tokens; END has none."""
        return "".join(self.target[token] for token in tokens).strip()

    @torch.no_grad()
    def translate(self, sentence: str, *, has_positions: bool = True) -> tuple[list[int], dict[str, Tensor]]:
        """Return the tokens of greedy search, and weights (H, Tq, Tk), memory and logits by name."""
        model, source = self.model, torch.tensor([self.ids(sentence)])
        positions = model.source_embedding.positions
        if not has_positions:
            model.source_embedding.positions = None
        try:
            with attent.watch(model.encoder) as encoder_maps:
                memory = model.encode(source, torch.tensor([source.shape[1]]))
        finally:
            model.source_embedding.positions = positions
        tokens = [BEGIN]
        while tokens[-1] != END and len(tokens) < LONGEST:
            tokens.append(int(model.output(model.decode(memory, torch.tensor([tokens])))[0, -1].argmax()))
        with attent.watch(model.decoder) as maps:
            logits = model.output(model.decode(memory, torch.tensor([tokens[:-1]])))[0]
        weights = {name.split(".")[-1]: recorded.dense()[0] for name, recorded in maps.items()}
        weights["encoder"] = next(iter(encoder_maps.values())).dense()[0]
        return tokens[1:], {**weights, "memory": memory.features[0], "logits": logits}


@pytest.fixture(scope="session")
def translator() -> Course:
    """The course's translator, in Python."""
    return Course(site_figures.translator())
