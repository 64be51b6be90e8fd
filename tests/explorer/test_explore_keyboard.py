"""Tasks on the page of `attent explore` by the keyboard and the text alternative alone, and what axe-core finds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from attent.explorer.server import ExploreServer
from attent.tasks.translation.translator import Translator

pytestmark = pytest.mark.slow

FOCUSED = "document.activeElement"


@pytest.fixture
def page(served: ExploreServer, window: Any, translator: Translator, wait: Any) -> Any:
    page = window.open(served.address)
    wait.ended(page, translator.translate("abc"))
    return page


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element that matches has the focus."""
    for _ in range(40):
        if page.evaluate(f"{FOCUSED}.matches({selector!r})"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} is not reached by Tab")


def test_the_weights_of_a_token_are_read(page: Any, translator: Translator, wait: Any) -> None:
    tab_to(page, ".written button")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    piece = page.locator(".written bdi").nth(1).inner_text()
    wait.until(page, f"document.querySelector('.answer .said').textContent === 'while writing {piece}'")
    weights = translator.map("abc", translator.translate("abc"))["decoder.layers.1.cross_attention"].weights
    row = weights.dense()[0].mean(0)[1]
    readout = page.locator(".answer .readout")
    # what a screen reader says of the change
    assert readout.get_attribute("aria-live") == "polite"
    entropy = -(row * row.log()).sum().item()
    if entropy >= 0.98 * math.log(len(row)):
        assert readout.inner_text() == f"nearly uniform: about 1/{len(row)} each"
    else:
        assert readout.inner_text().startswith(f"to ⁨{'abc'[int(row.argmax())]}⁩ {row.max().item():.2f}")


def test_a_head_is_switched_off_and_on(page: Any, translator: Translator, wait: Any) -> None:
    before = page.inner_text(".status")
    tab_to(page, "button.head")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.inner_text(".grid h2") == "Layer 0, head 0"
    tab_to(page, "button.switch")
    assert page.evaluate(f"{FOCUSED}.textContent") == "switch off head 0"
    page.keyboard.press("Enter")
    wait.until(page, "document.querySelector('.status').textContent.endsWith('(without 1 head)')")
    wait.view(page)
    wait.until(page, f"{FOCUSED}.textContent === 'switch on head 0'")
    page.keyboard.press("Enter")
    wait.ended(page, before)


def test_a_token_is_replaced(page: Any, wait: Any) -> None:
    tab_to(page, ".written button")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    # the offers are named with their probabilities
    page.keyboard.press("Tab")
    offer = page.evaluate(f"{FOCUSED}.querySelector('bdi').textContent")
    assert "%" in page.evaluate(f"{FOCUSED}.textContent")
    page.keyboard.press("Enter")
    page.wait_for_selector(".written .forced")
    wait.view(page)
    assert page.locator(".written bdi").nth(1).inner_text() == offer
    wait.until(page, f"{FOCUSED} === document.querySelectorAll('.written button')[1]")


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])
def test_axe_core_finds_nothing_serious(
    served: ExploreServer, window: Any, translator: Translator, wait: Any, size: tuple[int, int], dark: bool
) -> None:
    page = window.open(served.address, size=size, dark=dark)
    wait.ended(page, translator.translate("abc"))
    page.click("summary")
    page.locator(".written button").nth(1).click()
    assert window.serious_faults(page) == []
