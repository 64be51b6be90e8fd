"""A page from disk in a real browser.

Tokens selected together, files saved, and addresses opened again.
"""

from __future__ import annotations

import csv
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.scene import Scene

pytestmark = pytest.mark.slow
WIDE, NARROW = ((1280, 800), False), ((390, 844), True)
SIZES = pytest.mark.parametrize(("size", "dark"), [WIDE, NARROW], ids=["wide", "narrow"])
TOKENS = ("=1+1", 'a "long", ' + "very " * 30 + "long token", "<b>&amp;</b>", "on", "it")


def make_scene(length: int = 5, heads: int = 3, tokens: tuple[str, ...] | None = None) -> Scene:
    weights = {f"layers.{layer}": torch.randn(heads, length, length).mul(2).softmax(-1) for layer in range(2)}
    title = "A title / with \\ marks: " + "long " * 40
    return build_scene(weights, tokens or [f"t{position}" for position in range(length)], title=title)


def line(scene: Scene, side: str, position: int, head: int = 0) -> np.ndarray:
    """A row or a column of the last layer, as float64 numbers of 32 bits."""
    whole = scene.groups[0].layers[1].rows(torch.arange(scene.groups[0].shape[1]))[head]
    return (whole[position] if side == "row" else whole[:, position]).numpy().astype(np.float64)


def ready(window: Any, address: Path | str, **options: Any) -> Any:
    view = window.open(address, **options)
    view.wait_for_selector(".head canvas")
    view.locator(".map .readout").filter(has_text="→").wait_for()
    view.click("summary")
    return view


def readout(view: Any, text: str, location: str = ".tokens .readout") -> str:
    view.locator(location).filter(has_text=text).wait_for()
    return view.inner_text(location)


def saved(view: Any, part: str, kind: str) -> tuple[bytes, str]:
    """What a button saves, and the name of the file."""
    with view.expect_download() as waiting:
        view.get_by_role("button", name=f"save the {part} as {kind}").click()
    return Path(waiting.value.path()).read_bytes(), waiting.value.suggested_filename


def table(view: Any, part: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(saved(view, part, "CSV")[0].decode(), newline="")))


def in_address(view: Any, text: str) -> str:
    for _ in range(100):
        if text in view.evaluate("location.hash"):
            break
        view.wait_for_timeout(50)
    return view.evaluate("location.hash")


@SIZES
def test_several_tokens_show_their_sum_or_mean(window: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    scene = make_scene()
    view = ready(window, page(scene).save(tmp_path / "page.html"), size=size, dark=dark)
    view.click("button[aria-label='layer 1, head 0']")
    view.click(".rows li:nth-child(2)")
    view.click(".rows li:nth-child(4)", modifiers=["ControlOrMeta"])
    readout(view, "from 2 words (1, 3), their sum", ".said")
    total = line(scene, "row", 1) + line(scene, "row", 3)
    best = int(total.argmax())
    assert f"{total[best]:.2f}" in view.inner_text(".tokens .readout")
    assert view.locator(".rows li[aria-selected=true]").count() == 2
    # every digit is in the file
    header, *rows = table(view, "texts")
    assert header == ["column", "column_token", "sum of rows 1,3"]
    assert [float(row[2]) for row in rows] == total.tolist()
    window.picture(view, f"selection-{size[0]}", whole=True)
    # what is passed over changes nothing
    view.hover(".columns li:nth-child(1)")
    view.get_by_label("several words:").select_option("mean")
    readout(view, "(1, 3), their mean", ".said")
    assert [float(row[2]) for row in table(view, "texts")[1:]] == (total / 2).tolist()
    view.click(".rows li:nth-child(4)", modifiers=["Shift"])
    view.click(".rows li:nth-child(2)", modifiers=["Shift"])
    readout(view, "from 3 words (1 to 3)", ".said")
    # by the keyboard alone, on the other side
    view.keyboard.press("Escape")
    readout(view, "Point at")
    view.focus(".columns li:nth-child(1)")
    view.keyboard.press("ArrowRight")
    view.keyboard.press("Space")
    view.keyboard.press("Shift+ArrowRight")
    view.keyboard.press("Shift+ArrowRight")
    readout(view, "to 3 words (1 to 3), their mean", ".said")
    view.keyboard.press("Enter")
    readout(view, "to 2 words (1 to 2)", ".said")
    mean = (line(scene, "column", 1) + line(scene, "column", 2)) / 2
    assert [float(row[2]) for row in table(view, "texts")[1:]] == mean.tolist()


@SIZES
def test_files_hold_what_is_shown(window: Any, tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    scene = make_scene(tokens=TOKENS)
    view = ready(window, page(scene).save(tmp_path / "page.html"), size=size, dark=dark)
    view.click("button[aria-label='layer 1, head 0']")
    readout(view, "Layer 1, head 0", ".grid h2")
    header, *rows = table(view, "matrix")
    assert header == ["row", "row_token", "column", "column_token", "weight"]
    dense = np.stack([line(scene, "row", position) for position in range(5)])
    assert [float(row[4]) for row in rows] == dense.flatten().tolist()
    # a token that a spreadsheet would compute is none
    assert [row[3] for row in rows[:5]] == ["'=1+1", *TOKENS[1:]]
    picture, name = saved(view, "matrix", "PNG")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", picture[16:24])) > 200
    assert len(name) < 140
    assert name.startswith("A-title-with-marks-long")
    assert name.endswith("layer-1-head-0-matrix.png")
    assert all(address.startswith(("file:", "blob:", "data:")) for address in window.requests)
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_a_pooled_map_and_a_long_text_as_files(window: Any, tmp_path: Path) -> None:
    scene = make_scene(150, 2)
    view = ready(window, page(scene, size=0.2).save(tmp_path / "page.html"))
    view.click("button[aria-label='layer 1, head 1']")
    readout(view, "Layer 1, head 1", ".grid h2")
    readout(view, "tokens by", ".map .readout")
    header, first, *_ = table(view, "matrix")
    assert header == ["row", "row_end", "row_token", "column", "column_end", "column_token", "mean_weight"]
    step = int(first[1]) + 1
    assert step > 1
    assert f"the mean of these {step} × {step} weights: {step} tokens by {step} tokens" in view.inner_text(
        ".map .readout"
    )
    # of weights that are in the page
    view.click(".rows li:nth-child(3)")
    view.click(".rows li:nth-child(5)", modifiers=["Shift"])
    readout(view, "3 words (2 to 4)", ".said")
    names_by_key: dict[int, float] = {}
    for index in (2, 3, 4):
        view.keyboard.press("Escape")
        view.click(f".rows li:nth-child({index + 1})")
        readout(view, f"from t{index}", ".said")
        for key, _, weight in table(view, "texts")[1:]:
            if weight:
                names_by_key[int(key)] = names_by_key.get(int(key), 0.0) + float(weight)
    view.click(".rows li:nth-child(3)", modifiers=["Shift"])
    readout(view, "3 words (2 to 4)", ".said")
    assert "count as 0" in readout(view, "count as 0")
    sums = {int(row[0]): float(row[2]) for row in table(view, "texts")[1:] if row[2]}
    assert sums == pytest.approx(names_by_key, rel=1e-12)


def test_an_address_is_opened_again(window: Any, tmp_path: Path) -> None:
    file = page(make_scene()).save(tmp_path / "page.html")
    view = ready(window, file)
    assert view.evaluate("location.hash") == ""
    view.click("button[aria-label='layer 0, head 2']")
    view.get_by_label("several words:").select_option("mean")
    view.click(".columns li:nth-child(1)")
    view.click(".columns li:nth-child(3)", modifiers=["Shift"])
    address = in_address(view, "column=0-2")
    assert "column=0-2" in address
    view = ready(window, file.resolve().as_uri() + address)
    readout(view, "to 3 words (0 to 2), their mean", ".said")
    assert view.inner_text(".grid h2") == "Layer 0, head 2"
    # what is not possible is left out, and nothing breaks
    wrong_ones = ["layer=7&head=-1&row=3-99", "group=nobody&layer=0", "layer=1e9&column=<b>"]
    for wrong in (*wrong_ones, "row=" + "1," * 3000, "%E0%A4%A&combine=max"):
        view.evaluate("address => { location.hash = address; }", wrong)
        view.wait_for_timeout(30)
        assert view.locator(".tokens .readout").inner_text()
    view.evaluate("location.hash = 'layer=1&head=1&row=4&temperature=0.1'")
    readout(view, "from t4", ".said")
    readout(view, "Layer 1, head 1", ".grid h2")
    view.keyboard.press("Escape")
    view.wait_for_timeout(300)
    assert "row" not in view.evaluate("location.hash")
