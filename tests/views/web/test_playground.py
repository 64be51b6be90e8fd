"""The playground in a real browser, opened from disk.

It trains, aligns, follows its address, and asks nobody for anything.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
# Updates within which seed 1 aligns, and milliseconds that a slow machine may take for them.
UPDATES, LIMIT = 400, 300_000
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(name="site", scope="module")
def site_hook() -> Any:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("site_playground")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(name="opened")
def open_page(site: Any, window: Any, tmp_path: Path) -> Any:
    """Opens the playground with a part of an address behind #."""
    file = tmp_path / "playground.html"
    file.write_text(site.page(), encoding="utf-8")

    def opened(address: str = "", **options: Any) -> Any:
        view = window.open(f"{file.as_uri()}{address}", **options)
        view.locator(".status").filter(has_text="not trained").wait_for()
        return view

    return opened


def scores(view: Any) -> tuple[float, int]:
    """The alignment error rate and the updates after which it was counted."""
    element = view.locator(".scores")
    return float(element.get_attribute("data-error") or 1), int(element.get_attribute("data-updates") or 0)


def train(view: Any) -> None:
    view.click(".train")
    for _ in range(LIMIT // 100):
        error, updates = scores(view)
        if updates >= UPDATES or error <= 0.1:
            return
        view.wait_for_timeout(100)


def wait_for_update(view: Any) -> None:
    view.locator(".status").filter(has_text="update").wait_for()


def test_equal_words_are_counted_where_they_are_shown(opened: Any) -> None:
    view = opened("#text=the+king+likes+the+small+dog")
    words = ["the₁", "king", "likes", "the₂", "small", "dog"]
    english, french = view.locator(".board .list").all()
    assert english.locator("li").all_inner_texts() == words
    assert french.locator("li").all_inner_texts() == ["le₁", "roi", "aime", "le₂", "petit", "chien"]
    assert view.locator("table.matrix").first.locator("thead th").all_inner_texts() == words
    french.locator("li").nth(3).focus()
    view.locator(".said").filter(has_text="while writing le₂: ").wait_for()


def test_links_grow_out_of_noise(opened: Any, window: Any) -> None:
    view = opened("#seed=1")
    view.locator(".scores").filter(has_text="links wrong").wait_for()
    error, updates = scores(view)
    assert (error > 0.5, updates) == (True, 0)
    train(view)
    assert scores(view)[0] <= 0.1
    view.locator(".picture i").filter(has_text="le chien noir chante").wait_for(timeout=LIMIT)
    view.click(".train")
    assert view.inner_text(".train") == "Train"
    rows = [row.split("\t") for row in view.inner_text("table.matrix >> nth=0").splitlines()]
    weights = {row[0]: dict(zip(rows[0][1:], map(float, row[1:]), strict=True)) for row in rows[1:]}
    assert {french: max(row, key=lambda word: row[word]) for french, row in weights.items()} == {
        "le": "the", "chien": "dog", "noir": "black", "chante": "sings",
    }  # fmt: skip
    view.locator(".list >> nth=1").locator("li >> nth=2").hover()
    assert view.inner_text(".said").startswith("while writing noir: black ")
    assert {request.split(":")[0] for request in window.requests} == {"file", "blob"}


def test_it_trains_from_the_keyboard_and_begins_anew_with_another_formula(opened: Any) -> None:
    view = opened()
    view.keyboard.press("Tab")
    view.keyboard.press("Enter")
    # of fewer than 20 updates no curve is kept
    view.locator(".status").filter(has_text=re.compile(r"update ([3-9]\d|\d{3})")).wait_for(timeout=LIMIT)
    view.focus(".list li")
    view.keyboard.press("ArrowRight")
    view.keyboard.press("End")
    assert view.evaluate("document.activeElement.textContent") == "sings"
    assert view.inner_text(".said").startswith("the weight of sings while writing ")
    view.fill("#playground-formula", "-|q-k|^2")
    view.locator(".curve .ghost[points*=',']").wait_for(state="attached")
    assert "score=-%7Cq-k%7C%5E2" in view.evaluate("location.hash")
    view.get_by_label("positions off").check()
    view.select_option(".controls select", "sparsemax")
    view.wait_for_timeout(600)
    assert view.evaluate("location.hash") == "#score=-%7Cq-k%7C%5E2&normalizer=sparsemax&positions=off"
    wait_for_update(view)
    view.get_by_role("button", name="Reset").click()
    view.locator(".status").filter(has_text="not trained").wait_for()


def test_a_wrong_formula_is_answered_in_one_line_and_stays_text(opened: Any) -> None:
    view = opened()
    for text, line in ((HOSTILE, "got “<” (character 1)"), ("q·x", "“x” is not known"), ("q", "must be a number")):
        view.fill("#playground-formula", text)
        assert line in view.inner_text("#playground-error")
        assert view.get_attribute("#playground-formula", "aria-invalid") == "true"
    view.fill("#playground-text", f"the dog {HOSTILE}")
    view.locator(".playground > .wrong").filter(has_text="“<img” is none of the 30 words").wait_for()
    view.fill("#playground-formula", "sqrt(q·k - 1000)")
    assert view.get_attribute("#playground-formula", "aria-invalid") is None
    view.wait_for_timeout(600)
    view.click(".train")
    view.locator(".playground > .wrong").filter(has_text="the loss is no number").wait_for()
    assert view.locator("img").count() == 0


def test_an_address_is_an_experiment(opened: Any) -> None:
    view = opened("#score=q%C2%B7W+k&mask=window&fixed=on&identity=on&seed=7&text=a+cat+sings+often")
    assert view.input_value("#playground-formula") == "q·W k"
    assert [view.locator("select").nth(number).input_value() for number in (0, 1)] == ["softmax", "window"]
    assert view.get_by_label("one fixed vector").is_checked()
    assert view.get_by_label("each word sees itself").is_checked()
    assert not view.get_by_label("positions off").is_checked()
    assert view.get_by_label("seed").input_value() == "7"
    assert view.locator(".list").first.inner_text().split() == ["a", "cat", "sings", "often"]
    view.evaluate("location.hash = '#score=0'")
    view.locator(".status").filter(has_text="update").wait_for()
    assert view.input_value("#playground-formula") == "0"
    # the anchor of a heading is no experiment
    view.evaluate("location.hash = '#formula'")
    assert view.input_value("#playground-formula") == "0"


def test_a_hostile_address_stays_text(opened: Any) -> None:
    view = opened(f"#score={quote(HOSTILE)}&normalizer=__proto__&seed=1e9&text={quote(HOSTILE)}&constructor=1")
    assert view.input_value("#playground-formula") == "q·k / sqrt(d)"
    assert view.input_value("#playground-text") == HOSTILE
    assert view.locator("img").count() == 0
    view = opened("#" + "score=q&" * 1000)
    assert view.inner_text(".playground > .wrong") == "The address is too long, and was not read."


def test_the_program_is_copied(opened: Any) -> None:
    view = opened("#seed=5", permissions=["clipboard-read", "clipboard-write"])
    view.get_by_role("button", name="Copy as Python").click()
    view.get_by_role("button", name="Copied").wait_for()
    program = view.evaluate("navigator.clipboard.readText()")
    assert program.startswith('"""Attention as the playground')
    assert "SEED, UPDATES = 32, 16, 5, 50" in program


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "narrow"])
def test_axe_finds_nothing_serious_and_nothing_is_beyond_the_window(
    opened: Any, window: Any, size: tuple[int, int], dark: bool
) -> None:
    view = opened("#text=the+big+black+dog+under+a+small+tree+sees+a+cat", size=size, dark=dark)
    view.click("summary")
    view.fill("#playground-formula", "q·")
    view.locator(".matrices table").first.wait_for()
    assert window.serious_faults(view) == []
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_without_scripts_or_workers_the_still_picture_stays(site: Any, window: Any, tmp_path: Path) -> None:
    page = '<!DOCTYPE html><meta charset="utf-8"><div id="playground" class="compact">a still picture</div>'
    file = tmp_path / "start.html"
    file.write_text(f"{page}<script>{site.script()}</script>", encoding="utf-8")
    assert window.open(file, java_script_enabled=False).inner_text("#playground") == "a still picture"
    view = window.open(file)
    view.get_by_role("link", name="Change its formula").wait_for()
    assert view.locator("input, select").count() == 0
    file.write_text(f"{page}<script>delete window.Worker; {site.script()}</script>", encoding="utf-8")
    assert window.open(file).inner_text("#playground") == "a still picture"
    file.write_text(site.page(), encoding="utf-8")
    assert "which this browser does not run" in window.open(file, java_script_enabled=False).inner_text("#playground")
