from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import attent
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, ShapeError
from attent.views.build_scene import build_scene
from attent.views.pages.page import EXPORT, IMPORT, bundle, frame, page, web_file

WEIGHTS = torch.rand(2, 3, 3).softmax(-1)


class Elements(HTMLParser):
    """Which elements there are, and what they ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]


def elements(html: str) -> Elements:
    read = Elements()
    read.feed(html)
    return read


def test_a_page_asks_for_nothing() -> None:
    html = attent.views.page(WEIGHTS, "abc", title="three").html
    assert elements(html).asked == []
    assert "default-src 'none'" in html
    assert "<title>three</title>" in html
    assert len(page(torch.ones(1, 1), ["one"]).html.encode()) < 500 * 1024
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)


def test_no_token_is_read_as_markup() -> None:
    hostile = ["<script>alert(1)</script>", "</script><img src=x>", "<!--", "{{packs}}", "\u2028"]
    weights = torch.rand(5, 5).softmax(-1)
    html, plain = (page(weights, labels, title=labels[1]).html for labels in (hostile, list("abcde")))
    assert elements(html).found == elements(plain).found
    assert "<script>alert" not in html
    assert elements(page(weights, hostile)._repr_html_()).found == ["iframe"]
    assert '"labels":["?","b","c"]' in page(WEIGHTS, ["\ud83d", "b", "c"]).html


def test_the_attentions_that_hugging_face_returns() -> None:
    layers = (WEIGHTS[None], WEIGHTS[None].flip(1))
    html = page({"layers.0": layers[0], "layers.1": layers[1]}, "abc").html
    assert page(layers, "abc").html == page(build_scene(layers, "abc")).html == html


def test_a_page_has_a_size_and_is_saved_where_asked(tmp_path: Path) -> None:
    weights = {f"layers.{layer}": torch.randn(4, 200, 200).mul(3).softmax(-1) for layer in range(3)}
    assert len(page(weights, size=0.25).html.encode()) <= 2**18
    with pytest.raises(ArgumentError, match="size must leave room"):
        page(weights, size=0.01)
    scene_page = page(WEIGHTS)
    assert scene_page.save(tmp_path / "new" / "a.html").read_text(encoding="utf-8") == scene_page.html
    with pytest.raises(ArgumentError, match=r"must end in \.html"):
        scene_page.save(tmp_path / "a.png")
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot be written"):
        scene_page.save(tmp_path / "file" / "a.html")


def test_what_cannot_be_shown() -> None:
    with attent.watch(torch.nn.Linear(2, 2)) as captured:
        pass
    with pytest.raises(ArgumentError, match="nothing was seen"):
        page(captured, [])
    with pytest.raises(ArgumentError, match="has 0 queries"):
        page(torch.zeros(1, 0, 0), [])
    with pytest.raises(ShapeError, match="there are 2 labels in tokens"):
        page(WEIGHTS, "ab")
    with pytest.raises(ArgumentError, match="too many weights"):
        page(torch.ones(1, 1).expand(100_000, 100_000))


WEB = Path(str(files("attent.views").joinpath("web")))
MODULES = sorted(file.relative_to(WEB).with_suffix("").as_posix() for file in WEB.rglob("*.js"))


@pytest.mark.parametrize("name", MODULES)
def test_modules_keep_to_what_is_understood(name: str) -> None:
    script = bundle("page")
    # what is imported stands before
    assert script.index("const module_elements") < script.index("const module_grid") < script.index("const module_page")
    assert script.count("const module_elements =") == 1
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    text = web_file(f"{name}.js")
    bundle(name)
    assert len(text.splitlines()) <= 300
    assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text))
    assert len(re.findall(r"^export\b", text, re.MULTILINE)) == len(EXPORT.findall(text))
    # no markup is made of text, and nothing is fetched from another host
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org/2000/svg)", text
    )


class Formatter:
    """IPython's, as far as an extension knows it."""

    def __init__(self) -> None:
        self.kinds: dict[type, Any] = {}

    def for_type(self, kind: type, function: Any) -> None:
        self.kinds[kind] = function


def test_the_extension_says_how_maps_are_shown() -> None:
    formatter = Formatter()
    display = SimpleNamespace(formatters={"text/html": formatter})
    attent.load_ipython_extension(SimpleNamespace(display_formatter=display))
    assert set(formatter.kinds) == {attent.AttentionMap, watch, type(build_scene(torch.ones(1, 1)))}


def test_maps_and_what_was_seen_are_frames() -> None:
    query = torch.randn(1, 2, 3, 5)
    _, weights = attent.attend(query, query, query, return_map=True)
    model = nn.MultiheadAttention(8, 2).eval()
    with torch.no_grad(), attent.watch(model) as captured:
        model(*torch.randn(3, 4, 1, 8))
    for displayed in (weights, captured, build_scene(weights)):
        assert frame(displayed).startswith("<iframe srcdoc=")
    # what is no page is printed as ever
    with attent.watch(nn.Linear(2, 2)) as captured:
        pass
    assert frame(captured) is None
