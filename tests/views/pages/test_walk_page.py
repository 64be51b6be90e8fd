"""The page of a walk: all of its numbers, and in a browser what each is made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attent.views.palette import color, palette
from attent.views.render_walk import walk_page
from attent.views.walk import walk, walk_run


def data_of(html: str) -> dict[str, Any]:
    """Return the walk that a page contains."""
    match = re.search("const WALK = (.*);\n", html)
    assert match is not None
    return json.loads(match[1])


def test_it_has_every_number_of_a_wide_walk() -> None:
    walkthrough = walk("a b c", width=80, mask="causal")
    html = walk_page(walkthrough).html
    steps = {step["name"]: step for step in data_of(html)["steps"]}
    for step in (*walkthrough.steps.values(), *walkthrough.parameters.values()):
        (matrix,) = steps[step.name]["heads"]
        assert matrix == [
            [pytest.approx(value, abs=1e-6) for value in row] for row in step.values.flatten(0, -2).tolist()
        ]
        assert steps[step.name]["rows"] == [*step.rows] and steps[step.name]["columns"] == [*step.columns]
    assert "-Infinity" in html
    page = walk_page(walk("</title><script>alert(1)</script> b")).html
    assert page.count("<script>") == 1 and "<script>alert" not in page


def test_it_has_every_head_and_begins_with_the_chosen_one(translator) -> None:
    data = data_of(walk_page(walk_run(translator, "abc", kind="cross", head=2)).html)
    assert data["head"] == 2
    assert {len(step["heads"]) for step in data["steps"] if step["name"] in ("Q", "weights", "output")} == {3}


@pytest.fixture
def sums(window: Any, tmp_path: Path):
    """A function that opens the page of a walk, and one that reads its sum."""

    def opened(walkthrough: Any, **options: Any) -> Any:
        return window.open(walk_page(walkthrough).save(tmp_path / "walk.html"), **options)

    return opened


def minus(text: str) -> str:
    return text.replace("-", "−")


def product(left: list[float], right: list[float], labels: tuple[str, ...] = ()) -> str:
    """Write a sum of products as the page does."""
    names = [f"{label} " for label in labels] or [""] * len(left)
    factors = zip(names, left, right, strict=True)
    terms = [f"{name}{a:.2f}·{f'({b:.2f})' if b < 0 else f'{b:.2f}'}" for name, a, b in factors]
    return minus(" + ".join(terms))


@pytest.mark.slow
def test_a_number_is_written_out_where_one_points(sums) -> None:
    walkthrough = walk("good dog", seed=1)
    page = sums(walkthrough)
    query, key, value, scores, weights, output = (
        walkthrough.steps[name].values[0, 0].tolist() for name in ("Q", "K", "V", "scores", "weights", "output")
    )
    # at first, the score of the second word with its largest weight
    best = max(range(2), key=lambda column: weights[1][column])
    assert page.inner_text("#sum").startswith(f"scores[dog, {('good', 'dog')[best]}] = ")
    assert page.inner_text(".words [aria-pressed=true]") == "dog"
    page.locator("table[data-step=scores] [data-column]").nth(2).hover()
    assert page.inner_text("#sum") == minus(f"scores[dog, good] = {product(query[1], key[0])} = {scores[1][0]:.6f}")
    page.locator(".row table[data-step=output] [data-column]").nth(1).click()
    page.locator("table[data-step=scores] [data-column]").nth(0).hover()
    terms = product(weights[0], [row[1] for row in value], ("good", "dog"))
    assert page.inner_text("#sum").startswith(minus(f"output[good, d2] = {terms} = {output[0][1]:.6f}"))
    assert page.inner_text(".words [aria-pressed=true]") == "good"
    shares = page.locator(".share").all_inner_texts()
    assert shares == [f"{weight:.2f}" for weight in weights[0]]


@pytest.mark.slow
def test_every_number_of_every_step_is_explained(sums) -> None:
    page = sums(walk("the dog sings", heads=2, mask="causal", position="sinusoidal", width=8, whole=True))
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    texts = page.evaluate(
        "[...document.querySelectorAll('[data-column]')].map((cell) => "
        "(cell.focus(), document.getElementById('sum').textContent))"
    )
    assert len(texts) > 500
    for text in texts:
        assert re.fullmatch(r"[^\[]+\[\S+, \S+\] = \S.*", text) and "undefined" not in text and "NaN" not in text
    lit = page.locator(".words [aria-pressed=true]").count()
    assert lit == 1
    # the second head has numbers of its own
    before = page.inner_text(".row table[data-step=weights]")
    page.click("text=head 1")
    assert page.inner_text(".row table[data-step=weights]") != before


@pytest.mark.slow
def test_arrow_keys_move_the_focus_and_enter_keeps_it(sums) -> None:
    page = sums(walk("good dog sings", width=2))
    page.locator(".row table[data-step=scores] [data-column]").nth(0).focus()
    places = []
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        places.append(page.inner_text("#sum").split(" = ")[0])
    assert places == [
        "scores[good, dog]",
        "scores[dog, dog]",
        "scores[dog, sings]",
        "scaled[dog, good]",
        "scores[dog, sings]",
    ]
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#sum").startswith("scores[dog, sings]") and "kept" in page.inner_text("#sum")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "kept" not in page.inner_text("#sum")
    # every matrix has one cell that the tabulator reaches
    for table in page.locator("table").all():
        assert table.locator("[tabindex='0']").count() == 1
    page.locator(".words button").nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".words [aria-pressed=true]") == "sings"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_weights_have_the_colors_of_the_scale(sums, dark: bool) -> None:
    page = sums(walk("a", seed=0), dark=dark)
    cell = page.locator(".row table[data-step=weights] [data-column]")
    hexadecimal = color("weight", dark=dark)
    expected = ", ".join(str(int(hexadecimal[place : place + 2], 16)) for place in (1, 3, 5))
    assert cell.evaluate("(cell) => getComputedStyle(cell).backgroundColor") == f"rgb({expected})"
    assert cell.evaluate("(cell) => getComputedStyle(cell).color") == ("rgb(0, 0, 0)" if dark else "rgb(255, 255, 255)")
    # of more than 32 keys, uniform weights have the color of paper
    page = sums(walk(" ".join(["same"] * 40), seed=0), dark=dark)
    cell = page.locator(".row table[data-step=weights] [data-column]").first
    hexadecimal = palette(dark=dark)["ramp"][0]
    expected = ", ".join(str(int(hexadecimal[place : place + 2], 16)) for place in (1, 3, 5))
    assert cell.evaluate("(cell) => getComputedStyle(cell).backgroundColor") == f"rgb({expected})"
    assert "nearly uniform: about 1/40 each" in page.inner_text("#lead")
    assert "8 × uniform" in page.inner_text(".legend")


@pytest.mark.slow
def test_words_stay_in_view_on_a_telephone_and_the_step_is_named(sums) -> None:
    page = sums(walk("The cat sat on the mat"), size=(390, 844))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.click(".steps a:has-text('softmax')")
    page.wait_for_function("document.querySelector('.steps [aria-current=step]').textContent === 'softmax'")
    box = page.locator(".words button").nth(1).bounding_box()
    assert box is not None and 0 <= box["x"] < 100
    table = page.locator(".row table[data-step=weights]").bounding_box()
    assert table is not None and box["x"] + box["width"] <= table["x"] and table["x"] + table["width"] <= 390


@pytest.mark.slow
def test_matrices_are_tables_for_screen_readers(sums) -> None:
    page = sums(walk("The cat sat on the mat", heads=2))
    for table in page.locator("table").all():
        assert "=" in (table.locator("caption").text_content() or "") or table.get_attribute("data-step")
        assert table.locator("tbody tr").count() == table.locator("tbody th[scope=row]").count()
        assert (
            table.locator("thead th[scope=col]").count() >= table.locator("tbody tr:first-child [data-column]").count()
        )
    assert page.locator("[aria-hidden]").count() == 0
    assert page.locator(".row table[data-step=weights]").aria_snapshot().count("rowheader") == 6
