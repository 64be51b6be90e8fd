"""What the page of `attent explore` shows around an answer.

Whose looks shade what is read, and what an error leaves of the one before.
"""

from __future__ import annotations

from typing import Any

import pytest

from attent.explorer.server import ExploreServer
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.tasks.translation.translator import Translator

pytestmark = pytest.mark.slow


def answered(wait: Any, page: Any) -> None:
    """Wait until the answer is there, and the view of it."""
    wait.so_that(
        page,
        lambda: page.locator(".former").count() == 0 and page.locator(".zoom canvas[data-complete='true']").count() > 0,
    )


def shading(page: Any) -> list[float]:
    """The weights by which the tokens read are shaded; 0 where there is none."""
    return [float(piece.get_attribute("data-weight") or 0) for piece in page.locator(".read li").all()]


def test_the_text_is_shaded_by_the_token_that_is_selected_and_says_whose(
    served: ExploreServer, window: Any, translator: Translator, wait: Any
) -> None:
    page = window.open(served.address)
    answered(wait, page)
    decoding = StepwiseDecoding(translator, "abc")
    tokens = [step.chosen.piece for step in decoding]
    maps = {name: labelled.weights[0] for name, labelled in decoding.map().items()}
    last, second = maps["decoder.layers.1.cross_attention"].mean(0), maps["decoder.layers.0.cross_attention"][1]

    def is_shaded(position: int, weights: Any) -> bool:
        title = page.locator(".run .answer .said").inner_text() == f"while writing {tokens[position]}"
        shown = page.locator(".written li").nth(position).get_attribute("class") or ""
        return title and "shown" in shown and shading(page) == pytest.approx(weights[position].tolist(), rel=1e-3)

    # at first the most peaked one
    peaked = int(last.max(1).values.argmax())
    wait.so_that(page, lambda: is_shaded(peaked, last))
    page.locator(".written button").nth(0).click()
    wait.so_that(page, lambda: is_shaded(0, last))
    colors = {
        piece.evaluate("piece => getComputedStyle(piece).backgroundColor") for piece in page.locator(".read li").all()
    }
    assert len(colors) > 1
    window.picture(page, "explore-shaded", whole=True)
    # the token that was clicked stays, whichever is pointed at
    page.locator(".written button").nth(1).hover()
    page.wait_for_timeout(300)
    assert is_shaded(0, last)
    page.keyboard.press("Escape")
    page.locator(".grid h2").hover()
    # others are shown while they are pointed at
    page.locator(".written button").nth(1).hover()
    wait.so_that(page, lambda: is_shaded(1, last))
    page.locator(".grid h2").hover()
    wait.so_that(page, lambda: is_shaded(0, last))
    # the head that the view shows is the one that shades
    page.locator(".heads .row").nth(1).locator("button").nth(1).click()  # layer 0, head 1
    wait.so_that(page, lambda: is_shaded(0, second))
    # a map of other tokens has no row of it, which is shaded as it was written
    page.click(".groups button[value=encoder]")
    page.locator(".written button").nth(1).hover()
    wait.so_that(page, lambda: is_shaded(1, last))


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])
def test_of_a_refused_text_there_is_the_message_alone(
    served: ExploreServer, window: Any, size: tuple[int, int], dark: bool, wait: Any
) -> None:
    page = window.open(served.address, size=size, dark=dark)
    answered(wait, page)
    page.route("**/api/translate", lambda route: route.fulfill(status=400, json={"error": "the text is too long"}))
    page.fill("#text", "bad")
    page.wait_for_selector(".status.wrong")
    assert page.locator(".status.wrong").inner_text() == "the text is too long"
    for part in (".read li", ".written li", ".zoom", ".tokens", ".links path"):
        assert page.locator(part).count() == 0, part
    assert page.locator(".answer .said").inner_text() == page.locator(".answer .readout").inner_text() == ""
    window.picture(page, f"explore-{size[0]}-after-an-error", whole=True)
    page.unroute("**/api/translate")
    page.locator("#text").press("Enter")
    answered(wait, page)
    assert page.locator(".read li bdi").all_inner_texts() == [*"bad"]
    window.wrong = [wrong for wrong in window.wrong if "status of 400" not in wrong]
