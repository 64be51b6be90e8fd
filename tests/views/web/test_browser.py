"""A page in a real browser, opened from disk: what a reader points at, presses and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.render_walk import walk_page
from attent.views.scene import Picture, Scene
from attent.views.walk import walk

pytestmark = pytest.mark.slow

TOKENS = ("the", "cat", "sat", "on", "it")
NARROW = (390, 844)
# Pixels of a cell of a small matrix.
CELL = 40


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
        view.wait_for_selector(".head canvas", state="attached")
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
    assert side * CELL < box["width"]
    right, bottom = box["x"] + box["width"] - 2, box["y"] + box["height"] - 2
    view.mouse.move(right - (side - column - 0.5) * CELL, bottom - (side - row - 0.5) * CELL)
    # drawn before the next frame
    view.wait_for_timeout(100)


def shown_value(view: Any) -> float:
    return float(view.locator(".map .readout").get_attribute("data-value"))


def test_pointing_at_a_cell_shows_the_maps_own_number(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    for row, column in ((0, 0), (3, 1), (4, 4)):
        over_cell(view, row, column, 5)
        assert shown_value(view) == pytest.approx(weights(scene, 1, None, row)[column].item(), rel=1e-3)
        assert f"⁨{TOKENS[row]}⁩ → ⁨{TOKENS[column]}⁩: " in view.inner_text(".map .readout")


def wait_for_row(view: Any, row: int) -> None:
    view.locator(f".rows li[data-place='{row}'][aria-selected=true]").wait_for()


def test_a_word_is_linked_to_its_strongest_keys_and_the_other_way(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    view.click("button[aria-label='layer 1, head 0']")
    view.hover(".rows li:nth-child(2)")
    wait_for_text(view, ".said", "from cat")
    row = weights(scene, 1, 0, 1)
    assert view.inner_text(".tokens .readout").startswith(f"to ⁨{TOKENS[row.argmax()]}⁩ {row.max().item():.2f}")
    assert view.locator(".links path").count() == int((row > 0.05).sum())
    view.hover(".columns li:nth-child(5)")
    wait_for_text(view, ".said", "to it")
    column = torch.stack([weights(scene, 1, 0, position)[4] for position in range(5)])
    assert view.inner_text(".tokens .readout").startswith(f"from ⁨{TOKENS[column.argmax()]}⁩ {column.max().item():.2f}")
    assert view.locator(".links path").count() == int((column > 0.05).sum())


def test_the_most_peaked_row_is_selected_at_first(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    maxima = torch.stack([weights(scene, 1, None, row).max() for row in range(5)])
    wait_for_row(view, int(maxima.argmax()))
    assert view.locator(".map .readout").get_attribute("data-row") == str(int(maxima.argmax()))


def test_all_of_it_is_reached_by_the_keyboard(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    lines: list[str] = []
    for _ in range(18):
        view.keyboard.press("Tab")
        lines.append(view.evaluate("(e => e.tagName + (e.getAttribute('role') || ''))(document.activeElement)"))
    for part in ("SUMMARY", "LIoption", "CANVASapplication", "BUTTONgridcell"):
        assert part in lines
    view.focus(".rows li")
    view.keyboard.press("ArrowRight")
    view.keyboard.press("ArrowRight")
    wait_for_text(view, ".said", f"from {TOKENS[2]}")
    wait_for_row(view, 2)
    view.focus(".map canvas")
    view.keyboard.press("PageUp")
    view.keyboard.press("ArrowDown")
    view.keyboard.press("End")
    view.locator(".map .readout[data-row='1'][data-column='4']").wait_for()
    assert shown_value(view) == pytest.approx(weights(scene, 1, None, 1)[4].item(), rel=1e-3)
    view.focus(".head[aria-selected=true]")
    view.keyboard.press("Home")
    view.keyboard.press("Enter")
    assert view.inner_text(".grid h2") == "Layer 0, head 0"
    view.keyboard.press("Escape")
    wait_for_text(view, ".tokens .readout", "Point at")


def test_figures_of_every_head(opened: Any) -> None:
    scene = make_scene()
    view = opened(scene)
    view.click("button[aria-label='layer 0, head 1']")
    assert view.inner_text(".grid h2") == "Layer 0, head 1"
    view.click("summary")
    first = torch.stack([weights(scene, 0, 1, row)[0] for row in range(5)]).mean().item()
    assert f"share on the first token {first:.4g}"[:-1] in view.inner_text(".summary")
    view.get_by_label("in place of each head, show").select_option("first")
    # whoever hears the page hears the figure too
    assert view.inner_text(f"button[aria-label='layer 0, head 1: {first:.2f}']") == f"{first:.2f}"
    view.get_by_label("in place of each head, show").select_option("thumbnails")
    view.locator("button[aria-label='layer 0, head 1'] canvas").wait_for()


def test_groups_layers_and_texts_of_an_encoder_decoder(opened: Any, translator: Any) -> None:
    view = opened(build_scene(translator.map("abc ab", "xyz")))
    assert view.inner_text(".said").startswith("while writing ")
    assert view.locator(".rows li").count() == 4
    view.click(".groups button[value=encoder]")
    wait_for_text(view, ".said", "from ")
    assert view.locator(".rows li").count() == 6
    assert view.inner_text(".rows li:nth-child(4)") == "␣"


def test_numbers_are_chosen_and_remembered(opened: Any, window: Any, translator: Any) -> None:
    scene = build_scene(translator.map("bad", "654", gradients=True))
    view = opened(scene)
    view.click("summary")
    numbers = view.get_by_label("numbers")
    assert numbers.locator("option").all_inner_texts() == ["weights", "norms", "gradient × weights"]
    assert numbers.input_value() == "weights"
    over_cell(view, 1, 2, 3)
    gradient = "the gradient of the model's output by it"
    for measure, name in (("norms", "its weight times its projected value"), ("gradients", gradient)):
        view.get_by_label("numbers").select_option(measure)
        wait_for_text(view, ".about", name)
        group = scene.group(f"cross.{measure}")
        number = group.layers[-1].rows(torch.tensor([0]))[:, 0].mean(0)[0].item()
        view.wait_for_timeout(300)
        # the map has a row more than columns
        over_cell(view, -1, 0, 3)
        assert shown_value(view) == pytest.approx(number, rel=1e-2)
        window.picture(view, f"page-{measure}")
    # another attention is shown by the same numbers, and so is the page when it is loaded again
    view.click(".groups button[value=encoder]")
    wait_for_text(view, ".about", gradient)
    view.reload()
    view.click("summary")
    wait_for_text(view, ".about", gradient)
    view.get_by_label("numbers").select_option("weights")
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
    # whichever way they run, links end at their tokens
    view.click("button[aria-label='layer 1, head 0']")
    view.hover(".rows li:nth-child(3)")
    wait_for_row(view, 2)
    token = view.locator(".rows li").nth(2).bounding_box()
    end = "path => path.getPointAtLength(path.getTotalLength()).x + path.ownerSVGElement.getBoundingClientRect().x"
    ends = [link.evaluate(end) for link in view.locator(".links path").all()]
    assert ends
    assert all(abs(end - token["x"] - token["width"] / 2) < 2 for end in ends)


def test_runs_of_rows_go_the_way_of_the_text(opened: Any) -> None:
    view = opened(make_scene(90, 1, tokens=["كلمة"] * 90))
    first, second = (view.locator(f".rows li:nth-child({index})").bounding_box() for index in (1, 2))
    assert second["x"] < first["x"]
    # and so do the keys
    view.focus(".rows li")
    view.keyboard.press("ArrowLeft")
    wait_for_row(view, 1)
    view.keyboard.press("ArrowRight")
    wait_for_row(view, 0)


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
    pieces = sorted(view.locator(".rows li bdi").all(), key=lambda piece: piece.bounding_box()["x"])
    assert "".join(piece.inner_text() for piece in pieces) == displayed


def test_a_picture_shows_how_a_patch_looks(opened: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    scene = make_scene(5, tokens=None, picture=Picture(pixels, (2, 2), "tokens"))
    view = opened(scene)
    view.click("button[aria-label='layer 0, head 0']")
    view.click("text=from CLS")
    wait_for_text(view, ".picture .readout", "CLS")
    patches = weights(scene, 0, 0, 0)[1:]
    assert f"{patches.sum().item():.2f} on the picture" in view.inner_text(".picture .readout")
    box = view.locator(".picture > canvas").bounding_box()
    view.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.25)
    wait_for_text(view, ".picture .readout", "patch 1,2")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("ground", [0, 255], ids=["black", "white"])
def test_weights_are_seen_over_black_and_white(opened: Any, window: Any, ground: int, dark: bool) -> None:
    # on the first patch 4 times uniform, on the third 1.5 times, on the others less than uniform
    rows = torch.tensor([0.05, 0.8, 0.05, 0.3, 0.0]).div(1.2).expand(1, 5, 5)
    scene = build_scene({"self": rows}, picture=Picture(np.full((8, 8, 3), ground, np.uint8), (2, 2), "tokens"))
    view = opened(scene, dark=dark)
    wait_for_text(view, ".picture .readout", "CLS")
    pixel = """place => { const canvas = document.querySelector(".picture > canvas");
        const [x, y] = [canvas.width * place[0], canvas.height * place[1]];
        return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3); }"""
    points = ([0.25, 0.25], [0.75, 0.25], [0.25, 0.75])
    strong, none, weak = (np.array(view.evaluate(pixel, point)) for point in points)
    window.picture(view, f"over-{ground}")
    # the picture itself is below
    assert none.tolist() == [ground] * 3
    assert np.abs(strong - none).max() > 40
    assert 2 < np.abs(weak - none).max() < np.abs(strong - none).max() / 2


def test_a_uniform_map_is_pale_and_says_so(opened: Any) -> None:
    view = opened(build_scene({"self": torch.full((1, 12, 12), 1 / 12)}))
    wait_for_text(view, ".tokens .readout", "nearly uniform: about 1/12 each")
    assert view.locator(".links path").count() == 0
    assert luminances(view).min() > 0.85


def test_the_scale_of_few_keys_is_0_to_1_and_of_many_by_uniform(opened: Any) -> None:
    view = opened(build_scene({"self": torch.eye(12)[None]}))
    assert view.locator(".map .legend span").all_inner_texts()[:2] == ["0", "1"]
    assert luminances(view).min() < 0.2
    uniform = torch.full((1, 300, 300), 0.5 / 299)
    uniform[0].fill_diagonal_(0.5)
    view = opened(build_scene({"self": uniform}))
    assert view.locator(".map .legend span").all_inner_texts()[:2] == ["1× uniform", "8×"]
    assert np.median(luminances(view)) > 0.9


def test_the_scale_of_5000_keys(opened: Any) -> None:
    # each query attends to 8 of 5,000 keys, and nearly uniformly to the others
    rows = torch.full((1, 40, 5000), 0.2 / 4992)
    rows[..., :8] = 0.1
    view = opened(
        build_scene({"self": rows}, [f"k{index}" for index in range(5000)], [f"q{index}" for index in range(40)])
    )
    assert view.locator(".map .legend span").all_inner_texts()[:2] == ["1× uniform", "8×"]
    drawn = luminances(view)
    assert drawn.min() < 0.2
    assert np.median(drawn) > 0.9


def luminances(view: Any) -> np.ndarray:
    """Luminances of the pixels of all thumbnails of heads, from 0 to 1."""
    pixels = view.evaluate("""() => [...document.querySelectorAll(".head canvas")].flatMap((canvas) =>
        [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data])""")
    return np.array(pixels).reshape(-1, 4)[:, :3] @ [0.2126, 0.7152, 0.0722] / 255


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), (NARROW, True)], ids=["wide", "narrow"])
def test_tokens_beyond_the_end_are_counted(opened: Any, window: Any, size: tuple[int, int], dark: bool) -> None:
    view = opened(make_scene(700, 1), size=size, dark=dark)
    sign = ".side.row .more"
    end = view.locator(".list.rows").bounding_box()
    below = sum(token.bounding_box()["y"] > end["y"] + end["height"] - 12 for token in view.locator(".rows li").all())
    assert 0 < below < 700
    assert view.inner_text(sign) == f"scroll: {below} more"
    window.picture(view, f"more-{size[0]}")
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
    view.focus(".rows li")
    wait_for_row(view, 0)
    assert view.locator(".columns li[style*=background]").count() > 0
    assert view.locator(".links path").count() == 0


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
        frame.locator(".map canvas").first.wait_for()
        assert frame.locator(".rows li").count() == length


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), (NARROW, True)], ids=["wide", "narrow"])
def test_axe_core_finds_nothing_serious(
    opened: Any, window: Any, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    for scene in (
        make_scene(),
        make_scene(700, 1),
        make_scene(5, tokens=None, picture=Picture(pixels, (2, 2), "tokens")),
    ):
        view = opened(scene, size=size, dark=dark)
        view.click("summary")
        assert window.serious_faults(view) == []
    view = window.open(walk_page(walk("The cat sat on the mat")).save(tmp_path / "walk.html"), size=size, dark=dark)
    for summary in view.locator("summary").all():
        summary.click()
    assert window.serious_faults(view) == []
