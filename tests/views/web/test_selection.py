"""A page from disk in a real browser.

Tokens selected together, files saved, addresses opened again, and all heads on one scale.
"""

from __future__ import annotations

import csv
import io
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.scene import Scene

pytestmark = pytest.mark.slow

SIZES = pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])
TOKENS = ("=1+1", 'a "long", ' + "very " * 30 + "long token", "<b>&amp;</b>", "on", "it")
SVG = "{http://www.w3.org/2000/svg}"


def made(length: int = 5, heads: int = 3, tokens: tuple[str, ...] | None = None) -> Scene:
    weights = {f"layers.{layer}": torch.randn(heads, length, length).mul(2).softmax(-1) for layer in range(2)}
    return build_scene(
        weights, tokens or [f"t{place}" for place in range(length)], title="A title / with \\ marks: " + "long " * 40
    )


def line(scene: Scene, side: str, place: int, head: int = 0) -> np.ndarray:
    """A row or a column of the last layer, as float64 numbers of 32 bits."""
    whole = scene.groups[0].layers[1].rows(torch.arange(scene.groups[0].shape[1]))[head]
    return (whole[place] if side == "row" else whole[:, place]).numpy().astype(np.float64)


def ready(window: Any, address: Path | str, **how: Any) -> Any:
    there = window.open(address, **how)
    there.wait_for_selector(".head canvas")
    there.locator(".map .readout").filter(has_text="→").wait_for()
    return there


def said(there: Any, text: str, where: str = ".tokens .readout") -> str:
    there.locator(where).filter(has_text=text).wait_for()
    return there.inner_text(where)


def saved(there: Any, part: str, kind: str) -> tuple[bytes, str]:
    """What a button saves, and the name of the file."""
    with there.expect_download() as waiting:
        there.get_by_role("button", name=f"save the {part} as {kind}").click()
    return Path(waiting.value.path()).read_bytes(), waiting.value.suggested_filename


def table(there: Any, part: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(saved(there, part, "CSV")[0].decode(), newline="")))


def in_address(there: Any, text: str) -> str:
    for _ in range(100):
        if text in there.evaluate("location.hash"):
            break
        there.wait_for_timeout(50)
    return there.evaluate("location.hash")


@SIZES
def test_several_tokens_show_their_sum_or_mean(window: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    scene = made()
    there = ready(window, page(scene).save(tmp_path / "page.html"), size=size, dark=dark)
    there.click("button[aria-label='layer 1, head 0']")
    there.click(".rows li:nth-child(2)")
    there.click(".rows li:nth-child(4)", modifiers=["ControlOrMeta"])
    said(there, "2 tokens (rows 1, 3) look at, the sum")
    total = line(scene, "row", 1) + line(scene, "row", 3)
    best = int(total.argmax())
    assert float(there.inner_text(f".columns li:nth-child({best + 1}) .weight")) == pytest.approx(total[best], rel=1e-3)
    assert there.locator(".rows li[aria-selected=true]").count() == 2
    # every digit is in the file
    header, *rows = table(there, "tokens")
    assert header == ["column", "column_token", "sum of rows 1,3"]
    assert [float(row[2]) for row in rows] == total.tolist()
    window.picture(there, f"selection-{size[0]}", whole=True)
    # what is passed over changes nothing
    there.hover(".columns li:nth-child(1)")
    there.locator(".tokens select").select_option("mean")
    said(there, "(rows 1, 3) look at, the mean")
    assert [float(row[2]) for row in table(there, "tokens")[1:]] == (total / 2).tolist()
    there.click(".rows li:nth-child(4)", modifiers=["Shift"])
    there.click(".rows li:nth-child(2)", modifiers=["Shift"])
    said(there, "3 tokens (rows 1 to 3)")
    # by the keyboard alone, on the other side
    there.keyboard.press("Escape")
    said(there, "Point at")
    there.focus(".columns li:nth-child(1)")
    there.keyboard.press("ArrowDown")
    there.keyboard.press("Space")
    there.keyboard.press("Shift+ArrowDown")
    there.keyboard.press("Shift+ArrowDown")
    said(there, "3 tokens (columns 1 to 3) are looked at by, the mean")
    there.keyboard.press("Enter")
    said(there, "2 tokens (columns 1 to 2) are looked at by")
    mean = (line(scene, "column", 1) + line(scene, "column", 2)) / 2
    assert [float(row[2]) for row in table(there, "tokens")[1:]] == mean.tolist()


@SIZES
def test_files_hold_what_is_shown(window: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    scene = made(tokens=TOKENS)
    there = ready(window, page(scene).save(tmp_path / "page.html"), size=size, dark=dark)
    there.click("button[aria-label='layer 1, head 0']")
    said(there, "layer 1, head 0", ".summary")
    header, *rows = table(there, "map")
    assert header == ["row", "row_token", "column", "column_token", "weight"]
    dense = np.stack([line(scene, "row", place) for place in range(5)])
    assert [float(row[4]) for row in rows] == dense.flatten().tolist()
    # a token that a spreadsheet would compute is none
    assert [row[3] for row in rows[:5]] == ["'=1+1", *TOKENS[1:]]
    for part in ("map", "tokens"):
        picture, name = saved(there, part, "PNG")
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", picture[16:24])
        assert min(width, height) > 200
        (tmp_path / f"{part}.png").write_bytes(picture)
        assert len(name) < 140
        assert name.startswith("A-title-with-marks-long")
        assert name.endswith(f"layer-1-head-0-{part}.png")
        drawing, name = saved(there, part, "SVG")
        root = ElementTree.fromstring(drawing)
        assert root.find(f"{SVG}title").text == name.removesuffix(".svg")
        texts = [text.text for text in root.iter(f"{SVG}text")]
        assert "<b>&amp;</b>" in texts or any(text.endswith("…") and text.startswith("<") for text in texts)
        assert "=1+1" in texts
        assert not list(root.iter(f"{SVG}image"))
    assert len(list(root.iter(f"{SVG}line"))) == there.locator(".tokens line").count() > 5
    assert all(address.startswith(("file:", "blob:", "data:")) for address in window.requests)
    assert there.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_a_pooled_map_and_a_long_text_as_files(window: Any, tmp_path: Path) -> None:
    scene = made(150, 2)
    there = ready(window, page(scene, size=0.2).save(tmp_path / "page.html"))
    there.click("button[aria-label='layer 1, head 1']")
    said(there, "layer 1, head 1", ".summary")
    said(there, "tokens by", ".map .readout")
    header, first, *_ = table(there, "map")
    assert header == ["row", "row_end", "row_token", "column", "column_end", "column_token", "mean_weight"]
    step = int(first[1]) + 1
    assert step > 1
    assert f"the mean of these {step} × {step} weights: {step} tokens by {step} tokens" in there.inner_text(
        ".map .readout"
    )
    # of weights that are in the page
    there.click(".rows li:nth-child(3)")
    there.click(".rows li:nth-child(5)", modifiers=["Shift"])
    said(there, "3 tokens (rows 2 to 4)")
    known: dict[int, float] = {}
    for place in (2, 3, 4):
        there.keyboard.press("Escape")
        there.click(f".rows li:nth-child({place + 1})")
        said(there, f"(row {place})")
        for key, _, weight in table(there, "tokens")[1:]:
            if weight:
                known[int(key)] = known.get(int(key), 0.0) + float(weight)
    there.click(".rows li:nth-child(3)", modifiers=["Shift"])
    assert "count as 0" in said(there, "3 tokens (rows 2 to 4)")
    assert {int(row[0]): float(row[2]) for row in table(there, "tokens")[1:] if row[2]} == pytest.approx(
        known, rel=1e-12
    )
    root = ElementTree.fromstring(saved(there, "tokens", "SVG")[0])
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "t0" in texts
    assert "t149" in texts


def test_an_address_is_opened_again(window: Any, tmp_path: Path) -> None:
    file = page(made()).save(tmp_path / "page.html")
    there = ready(window, file)
    assert there.evaluate("location.hash") == ""
    there.click("button[aria-label='layer 0, head 2']")
    there.locator(".tokens select").select_option("mean")
    there.click(".columns li:nth-child(1)")
    there.click(".columns li:nth-child(3)", modifiers=["Shift"])
    address = in_address(there, "column=0-2")
    assert "column=0-2" in address
    there = ready(window, file.resolve().as_uri() + address)
    said(there, "3 tokens (columns 0 to 2) are looked at by, the mean")
    assert there.inner_text(".summary").startswith("layer 0, head 2:")
    # what is not possible is left out, and nothing breaks
    for wrong in (
        "layer=7&head=-1&row=3-99",
        "group=nobody&layer=0",
        "layer=1e9&column=<b>",
        "row=" + "1," * 3000,
        "%E0%A4%A&combine=max",
    ):
        there.evaluate("address => { location.hash = address; }", wrong)
        there.wait_for_timeout(30)
        assert there.locator(".tokens .readout").inner_text()
    there.evaluate("location.hash = 'layer=1&head=1&row=4&temperature=0.1'")
    said(there, "⁨t4⁩ (row 4) looks at")
    said(there, "layer 1, head 1:", ".summary")
    there.keyboard.press("Escape")
    there.wait_for_timeout(300)
    assert "row" not in there.evaluate("location.hash")


@SIZES
def test_heads_on_one_scale(window: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    there = ready(window, page(made(heads=10)).save(tmp_path / "page.html"), size=size, dark=dark)
    tops = (
        "[...document.querySelectorAll('.head')].filter(cell => cell.checkVisibility()).map(cell => "
        "Number(cell.dataset.top))"
    )
    there.locator(".head canvas").nth(21).wait_for()
    assert len(set(there.evaluate(tops))) > 10
    own = there.evaluate(tops)
    there.locator(".grid select").nth(2).select_option("one scale for all")
    said(there, "One scale of colours for all maps, from 0 to", ".grid .about")
    assert there.evaluate(tops) == [max(own)] * 22
    there.locator(".grid select").nth(1).select_option("this layer, larger")
    said(there, "The heads of layer 1", ".grid .about")
    there.locator(".head .name", has_text="head 9").last.wait_for()
    assert there.evaluate(tops) == [max(own[11:])] * 11
    assert there.locator(".head[aria-label='layer 1, head 0']").bounding_box()["width"] > 80
    assert there.evaluate("document.documentElement.scrollWidth") <= size[0]
    there.focus(".head[aria-selected=true]")
    there.keyboard.press("Home")
    there.keyboard.press("ArrowRight")
    there.keyboard.press("Enter")
    said(there, "layer 1, head 1:", ".summary")
    there.locator(".grid").scroll_into_view_if_needed()
    window.picture(there, f"heads-{size[0]}", whole=True)
