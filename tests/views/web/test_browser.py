"""A page in a real browser, opened from disk: what a reader points at, presses and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.scene import Picture, Scene

pytestmark = pytest.mark.slow

TOKENS = ("the", "cat", "sat", "on", "it")
NARROW = (390, 844)


def make_scene(length: int = 5, layers: int = 2, **more: Any) -> Scene:
    maps = {f"layers.{layer}.attention": torch.randn(3, length, length).mul(2).softmax(-1) for layer in range(layers)}
    tokens = TOKENS if length == 5 else [f"t{position}" for position in range(length)]
    return build_scene(maps, more.pop("tokens", tokens), **more)


@pytest.fixture
def opened(window: Any, tmp_path: Path) -> Any:
    """Opens a scene as a page, waiting until it is drawn."""

    def drawn(scene: Scene, *, mebibytes: float = 8.0, **options: Any) -> Any:
        file = page(scene, size=mebibytes).save(tmp_path / "page.html")
        view = window.open(file, **options)
        view.wait_for_selector(".head canvas")
        wait_for_text(view, ".map .readout", "→")
        return view

    return drawn


def wait_for_text(view: Any, location: str, text: str) -> None:
    # playwright's other ways to wait evaluate strings, which our pages refuse
    view.locator(location).filter(has_text=text).wait_for()


def weights(scene: Scene, layer: int, head: int | None, row: int) -> torch.Tensor:
    result = scene.groups[0].layers[layer].rows(torch.tensor([row]))[:, 0]
    return result.mean(0) if head is None else result[head]


def over_cell(view: Any, row: int, column: int, side: int) -> None:
    """Move the pointer over a cell of the map; cells are counted from its lower right corner."""
    box = view.locator(".map canvas").first.bounding_box()
    assert side * 32 < box["width"]
    right, bottom = box["x"] + box["width"] - 2, box["y"] + box["height"] - 2
    view.mouse.move(right - (side - column - 0.5) * 32, bottom - (side - row - 0.5) * 32)


def shown_value(view: Any) -> float:
    return float(view.locator(".map .readout").get_attribute("data-value"))


def test_pointing_at_a_cell_shows_the_maps_own_number(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    for row, column in ((0, 0), (3, 1), (4, 4)):
        over_cell(view, row, column, 5)
        assert shown_value(view) == pytest.approx(weights(scene, 1, None, row)[column].item(), rel=1e-3)
        assert f"{TOKENS[row]}⁩ ({row}) → column ⁨{TOKENS[column]}" in view.inner_text(".map .readout")


def test_a_token_shows_what_it_looks_at_and_who_looks_at_it(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    view.click("button[aria-label='layer 1, head 0']")
    view.hover(".rows li:nth-child(2)")
    row = weights(scene, 1, 0, 1)
    best = TOKENS[row.argmax()]
    wait_for_text(view, ".tokens .readout", "looks at")
    assert view.inner_text(".tokens .readout").startswith("⁨cat⁩ (row 1) looks at: ⁨" + best)
    written = float(view.inner_text(f".columns li:nth-child({int(row.argmax()) + 1}) .weight"))
    assert written == pytest.approx(row.max().item(), rel=1e-3)
    assert view.locator(".tokens line").count() == sum((row >= 0.02 * row.max()).tolist())
    view.hover(".columns li:nth-child(5)")
    wait_for_text(view, ".tokens .readout", "is looked at by")
    column = torch.stack([weights(scene, 1, 0, position)[4] for position in range(5)])
    readout = view.inner_text(".tokens .readout")
    assert readout.startswith("⁨it⁩ (column 4) is looked at by: ⁨" + TOKENS[column.argmax()])


def test_all_of_it_is_reached_by_the_keyboard(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    lines: list[str] = []
    for _ in range(18):
        view.keyboard.press("Tab")
        lines.append(view.evaluate("(e => e.tagName + (e.getAttribute('role') || ''))(document.activeElement)"))
    for part in ("SELECT", "LIoption", "CANVASapplication", "BUTTONgridcell"):
        assert part in lines
    view.focus(".rows li")
    view.keyboard.press("ArrowDown")
    view.keyboard.press("ArrowDown")
    wait_for_text(view, ".tokens .readout", "(row 2)")
    view.focus(".map canvas")
    view.keyboard.press("ArrowRight")
    view.keyboard.press("End")
    view.keyboard.press("ArrowDown")
    assert shown_value(view) == pytest.approx(weights(scene, 1, None, 1)[4].item(), rel=1e-3)
    view.focus(".head[aria-selected=true]")
    view.keyboard.press("Home")
    view.keyboard.press("Enter")
    assert view.inner_text(".summary").startswith("layer 0, head 0:")
    view.keyboard.press("Escape")
    wait_for_text(view, ".tokens .readout", "Point at")


def test_figures_of_every_head(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    view.click("button[aria-label='layer 0, head 1']")
    assert [view.locator(".choices select").nth(index).input_value() for index in (1, 2)] == ["0", "1"]
    first = torch.stack([weights(scene, 0, 1, row)[0] for row in range(5)]).mean().item()
    assert f"share on the first token {first:.4g}"[:-1] in view.inner_text(".summary")
    view.locator(".grid select").first.select_option("first")
    # whoever hears the page hears the figure too
    assert view.inner_text(f"button[aria-label='layer 0, head 1: {first:.2f}']") == f"{first:.2f}"
    view.locator(".grid select").first.select_option("thumbnails")
    view.locator("button[aria-label='layer 0, head 1'] canvas").wait_for()


def test_groups_layers_and_texts_of_an_encoder_decoder(opened: Any, translator: Any) -> None:
    view = opened(build_scene(translator.map("abc ab", "xyz")))
    assert "about the token produced" in view.inner_text("header .about")
    assert view.locator(".rows li").count() == 4
    view.locator(".choices select").first.select_option("encoder")
    assert "about the token read in" in view.inner_text("header .about")
    assert view.locator(".rows li").count() == 6
    assert view.inner_text(".rows li:nth-child(4)") == "␣"


def test_numbers_are_chosen_and_remembered(opened: Any, window: Any, translator: Any) -> None:
    scene = build_scene(translator.map("bad", "654", gradients=True))
    view = opened(scene)
    numbers = view.locator(".choices select").nth(3)
    assert numbers.locator("option").all_inner_texts() == ["weights", "norms", "gradient × weights"]
    assert numbers.input_value() == "weights"
    over_cell(view, 1, 2, 3)
    gradient = "the gradient of the model's output by it"
    for measure, name in (("norms", "its weight times its projected value"), ("gradients", gradient)):
        view.locator(".choices select").nth(3).select_option(measure)
        wait_for_text(view, ".about", name)
        group = scene.group(f"cross.{measure}")
        number = group.layers[-1].rows(torch.tensor([0]))[:, 0].mean(0)[0].item()
        view.wait_for_timeout(300)
        # the map has a row more than columns
        over_cell(view, -1, 0, 3)
        assert shown_value(view) == pytest.approx(number, rel=1e-2)
        window.picture(view, f"page-{measure}")
    # another attention is shown by the same numbers, and so is the page when it is loaded again
    view.locator(".choices select").first.select_option("encoder")
    wait_for_text(view, ".about", gradient)
    view.reload()
    wait_for_text(view, ".about", gradient)
    view.locator(".choices select").nth(3).select_option("weights")
    wait_for_text(view, ".about", "each row sums to 1")


def test_hostile_tokens_are_text(opened: Any) -> None:
    script, image = "<script>document.title='hacked'</script>", "</script><img src=x onerror=document.title='hacked'>"
    hostile = (script, image, "<b>", "&amp;", "'\"")
    view = opened(make_scene(tokens=hostile, title="</title><script>document.title='hacked'</script>"))
    assert [view.inner_text(f".rows li:nth-child({position + 1}) bdi") for position in range(5)] == list(hostile)
    assert view.locator("img").count() == 0
    assert "hacked'" in view.title()


@pytest.mark.parametrize(
    "tokens",
    [("👩‍👩‍👧", "é", "́", "​", ""), ("القط", "جلس", "على", "السجادة", "."), ("猫", "が", "マット", "の", "上")],
    ids=["emoji and marks", "right to left", "CJK"],
)
def test_tokens_of_every_script(opened: Any, tokens: tuple[str, ...]) -> None:
    view = opened(make_scene(tokens=tokens))
    assert all(view.inner_text(f".columns li:nth-child({position + 1}) bdi").strip() for position in range(5))
    assert view.locator(".columns").get_attribute("dir") == ("rtl" if tokens[0] == "القط" else "ltr")
    # whichever way they run, tokens stand at their lines
    parts = (".rows bdi", ".board svg", ".columns bdi")
    row, line, column = (view.locator(part).first.bounding_box() for part in parts)
    assert abs(row["x"] + row["width"] - line["x"]) < 10
    assert abs(line["x"] + line["width"] - column["x"]) < 10


def test_runs_of_rows_go_the_way_of_the_text(opened: Any) -> None:
    view = opened(make_scene(90, 1, tokens=["كلمة"] * 90))
    first, second = (view.locator(f".rows li:nth-child({index})").bounding_box() for index in (1, 2))
    assert second["x"] < first["x"]
    # and so do the keys
    view.focus(".rows li")
    view.keyboard.press("ArrowLeft")
    wait_for_text(view, ".tokens .readout", "(row 1)")
    view.keyboard.press("ArrowRight")
    wait_for_text(view, ".tokens .readout", "(row 0)")


@pytest.mark.parametrize(
    ("tokens", "displayed"),
    [
        # a word or number of the other script reads as it is written; words run the way of the text
        (("في", " ", "2", "0", "2", "6", " ", "3", "/", "1", "0", " ", "شهر"), "شهر␣3/10␣2026␣في"),
        (("ab", "cd", " ", "أ", "ب", " ", "ef"), "abcd␣بأ␣ef"),
        (("نص", "نص", " ", "١", "٢", " ", "ab", "cd", " ef", "نص", "نص"), "نصنص␣efabcd␣١٢␣نصنص"),
    ],
)
def test_words_that_run_the_other_way(opened: Any, tokens: tuple[str, ...], displayed: str) -> None:
    view = opened(make_scene(len(tokens), 1, tokens=tokens), size=(1800, 900))
    view.check(".tokens input")
    pieces = sorted(view.locator(".rows li bdi").all(), key=lambda piece: piece.bounding_box()["x"])
    assert "".join(piece.inner_text() for piece in pieces) == displayed


def test_a_picture_shows_how_a_patch_looks(opened: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    scene = make_scene(5, tokens=None, picture=Picture(pixels, (2, 2), "tokens"))
    view = opened(scene)
    view.click("button[aria-label='layer 0, head 0']")
    view.click("text=how CLS looks")
    wait_for_text(view, ".picture .readout", "CLS")
    patches = weights(scene, 0, 0, 0)[1:]
    assert f"{patches.sum().item():.4g}"[:-1] in view.inner_text(".picture .readout")
    box = view.locator(".picture canvas").bounding_box()
    view.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.25)
    wait_for_text(view, ".picture .readout", "patch 1,2")


@pytest.mark.parametrize("ground", [0, 255], ids=["black", "white"])
def test_weights_are_seen_over_black_and_white(opened: Any, window: Any, ground: int) -> None:
    # what looks lies on the first patch, and on the third a fifth of it
    rows = torch.tensor([0.0, 0.5, 0.0, 0.1, 0.0]).expand(1, 5, 5)
    scene = build_scene({"self": rows}, picture=Picture(np.full((8, 8, 3), ground, np.uint8), (2, 2), "tokens"))
    view = opened(scene)
    view.click("text=how CLS looks")
    wait_for_text(view, ".picture .readout", "CLS")
    pixel = """place => { const canvas = document.querySelector(".picture canvas");
        const [x, y] = [canvas.width * place[0], canvas.height * place[1]];
        return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3); }"""
    places = ([0.25, 0.25], [0.75, 0.25], [0.25, 0.75])
    strong, none, fifth = (np.array(view.evaluate(pixel, place)) for place in places)
    window.picture(view, f"over-{ground}")
    assert none.min() == none.max() and 60 < none.max() < 225
    assert np.abs(strong - none).max() > 80
    assert np.abs(fifth - none).max() > 15


@pytest.mark.parametrize(
    ("length", "size", "dark"), [(60, (1280, 800), False), (700, NARROW, True)], ids=["columns", "running"]
)
def test_tokens_beyond_the_end_are_counted(
    opened: Any, window: Any, length: int, size: tuple[int, int], dark: bool
) -> None:
    view = opened(make_scene(length, 1), size=size, dark=dark)
    box, sign = (".board", ".tokens > .more") if length == 60 else (".list.rows", ".side.row .more")
    end = view.locator(box).bounding_box()
    below = sum(token.bounding_box()["y"] > end["y"] + end["height"] - 12 for token in view.locator(".rows li").all())
    assert 0 < below < length
    assert view.inner_text(sign) == f"… {below} more"
    view.locator(".tokens").scroll_into_view_if_needed()
    window.picture(view, f"more-{length}-{size[0]}")
    view.locator(".rows li").last.scroll_into_view_if_needed()
    view.locator(sign).wait_for(state="hidden")


def test_a_short_text_ends_without_a_sign(opened: Any) -> None:
    for length in (1, 5):
        view = opened(make_scene(length, 1, tokens=TOKENS[:length]))
        assert view.locator(".rows li").count() == length
        assert not view.locator(".more").locator("visible=true").count()


def test_a_long_text_runs_on_and_nothing_is_wider_than_a_telephone(opened: Any, window: Any) -> None:
    view = opened(make_scene(120, 3), size=NARROW, dark=True)
    assert view.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
    window.picture(view, "narrow-dark", whole=True)
    assert view.is_checked(".tokens input")
    view.focus(".rows li")
    wait_for_text(view, ".tokens .readout", "(row 0)")
    assert view.locator(".columns li[style*=background]").count() > 0
    view.uncheck(".tokens input")
    assert view.locator(".tokens line").count() > 0


def test_twelve_layers_of_twelve_heads_of_512_tokens(opened: Any, tmp_path: Path) -> None:
    near = -(torch.arange(512)[:, None] - torch.arange(512)).abs() / 40
    layers = {f"layers.{layer}": (torch.randn(12, 512, 512) * 1.5 + near * layer).softmax(-1) for layer in range(12)}
    view = opened(build_scene(layers, [f"t{position}" for position in range(512)]))
    assert (tmp_path / "page.html").stat().st_size <= 8 * 2**20
    # benchmarks/page.py measures it; here other tests may have the processor
    assert view.evaluate("performance.getEntriesByName('attention drawn')[0].startTime") < 5000
    assert view.locator(".head canvas").count() == 12 * 13


def test_several_in_one_notebook_never_meet(window: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    frames = "".join(page(make_scene(length, 1))._repr_html_() for length in (2, 3))
    file.write_text(f"<!doctype html><meta charset=utf-8><title>notebook</title>{frames}", encoding="utf-8")
    view = window.open(file)
    for index, length in enumerate((2, 3)):
        frame = view.frame_locator("iframe").nth(index)
        frame.locator(".head canvas").first.wait_for()
        assert frame.locator(".rows li").count() == length
