"""Untrained runs, and a client of the server's application without a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import attent
from attent.explorer.explorer import Explorer
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.server import ExploreServer, application
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer
from attent.views.build_scene import build_scene
from attent.views.scene import Scene

TOKEN = "a-token-of-this-start"
HOST = "127.0.0.1:8765"


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(2)
    source, target = CharTokenizer("abcde "), CharTokenizer("0123456")
    small = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(small | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


@pytest.fixture
def scene() -> Scene:
    """A scene of two heads with 300 queries and 280 keys."""
    torch.manual_seed(4)
    query, key = torch.randn(1, 2, 300, 4), torch.randn(1, 2, 280, 4)
    return build_scene(attent.attend(query, key, key, return_map=True)[1], title="300 places")


@pytest.fixture
def explorer(translator: Translator, filler: FillMask, scene: Scene) -> Iterator[Explorer]:
    runs = [LoadedRun("dates", "translate", translator), LoadedRun("blanks", "fill-mask", filler)]
    instance = Explorer(runs, [scene], text="abc")
    yield instance
    instance.close()


@pytest.fixture
def client(explorer: Explorer) -> TestClient:
    app = application(explorer, hosts=frozenset({HOST, "localhost:8765"}), token=TOKEN)
    return TestClient(app, base_url=f"http://{HOST}", headers={"X-Attent-Token": TOKEN}, raise_server_exceptions=False)


@pytest.fixture
def served(translator: Translator) -> Iterator[ExploreServer]:
    # a model of its own: what the test's thread runs would be heard by who watches the server's
    run = LoadedRun("dates", "translate", copy.deepcopy(translator))
    with ExploreServer(Explorer([run], text="abc"), port=0) as exploring:
        yield exploring


@pytest.fixture
def long() -> Iterator[tuple[ExploreServer, Any]]:
    """Two heads that look from 3,000 places to 3,000, and the map itself."""
    torch.manual_seed(7)
    query, key = torch.randn(1, 2, 3000, 16), torch.randn(1, 2, 3000, 16)
    weights = attent.attend(query, key, key, return_map=True)[1]
    with attent.explore(weights, [f"t{position}" for position in range(3000)], title="3,000 places") as exploring:
        yield exploring, weights


class Waiting:
    """Waits for what a page shows."""

    def until(self, page: Any, expression: str, value: object = None) -> None:
        """Wait for an expression; playwright's own way is what the page's policy forbids, to evaluate text."""
        self.so_that(page, lambda: page.evaluate(expression, value), f"{expression} of {value!r}")

    def so_that(self, page: Any, holds: Callable[[], bool], name: object = "it") -> None:
        for _ in range(600):
            if holds():
                return
            page.wait_for_timeout(100)
        pytest.fail(f"{name} never came to be; the page says {page.locator('.status').all_inner_texts()}")

    def view(self, page: Any) -> None:
        page.wait_for_selector(".zoom canvas[data-complete='true']", timeout=60_000)

    def ended(self, page: Any, text: str) -> None:
        """Wait until a text is there, and the view of it."""
        self.until(page, "text => document.querySelector('.status')?.textContent === text", text)
        self.view(page)

    def to_cell(self, page: Any, row: int, column: int) -> None:
        """Move to a cell of the matrix by the keyboard, and wait until its number is there."""
        page.locator(".zoom canvas").first.focus()
        place = page.locator(".zoom .readout").evaluate(
            "readout => [readout.dataset.row, readout.dataset.column].map(Number)"
        )
        for now, there, (less, more) in zip(
            place, (row, column), (("ArrowUp", "ArrowDown"), ("ArrowLeft", "ArrowRight")), strict=True
        ):
            for _ in range(abs(there - now)):
                page.keyboard.press(more if there > now else less)
        page.locator(f".zoom .readout[data-row='{row}'][data-column='{column}']:not([data-value=''])").wait_for()


@pytest.fixture
def wait() -> Waiting:
    return Waiting()
