"""The page of `attent explore` with texts of either direction, continued ones, and without one, in a browser."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from attent.explorer.explorer import Explorer
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.server import ExploreServer
from attent.search.settings import GenerationSettings
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer

pytestmark = pytest.mark.slow

SIZES = pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])


def serve(translator: Translator, text: str = "") -> ExploreServer:
    return ExploreServer(Explorer([LoadedRun("dates", "translate", copy.deepcopy(translator))], text=text), port=0)


def wait_for_status(page: Any, text: str) -> None:
    page.locator(".status").get_by_text(text, exact=True).wait_for()


@SIZES
def test_a_year_in_an_arabic_text_is_legible(
    window: Any, translator: Translator, size: tuple[int, int], dark: bool, wait: Any
) -> None:
    arabic = Translator(translator.model, CharTokenizer("ما 206"), translator.target_tokenizer)
    with serve(arabic, "ما 2026") as exploring:
        page = window.open(exploring.address, size=size, dark=dark)
        wait.view(page)
        by_place = sorted(page.locator(".read li").all(), key=lambda piece: piece.bounding_box()["x"])
        assert [piece.inner_text() for piece in by_place] == [*"2026␣ام"]
        window.picture(page, f"arabic-{size[0]}", whole=True)
        window.check()


@SIZES
def test_an_emptied_text_leaves_nothing_behind(
    window: Any, translator: Translator, size: tuple[int, int], dark: bool, wait: Any
) -> None:
    with serve(translator) as exploring:
        page = window.open(exploring.address, size=size, dark=dark)
        # nothing is typed yet
        wait_for_status(page, "Type a text to translate.")
        page.fill("#text", "abc")
        wait.view(page)
        page.click("button[aria-label='layer 0, head 1']")
        page.fill("#text", " ")
        wait_for_status(page, "Type a text to translate.")
        window.picture(page, f"emptied-{size[0]}", whole=True)
        for part in (".read li", ".written li", ".tokens", ".zoom", ".heads"):
            assert page.locator(part).count() == 0
        page.fill("#text", "cab")
        wait.view(page)
        assert page.locator(".read li").all_inner_texts() == [*"cab"]
        # seen as before
        assert page.inner_text(".grid h2") == "Layer 0, head 1"
        window.check()


def test_numbers_are_chosen_and_stay(window: Any, translator: Translator, wait: Any) -> None:
    with serve(translator, "abc") as exploring:
        page = window.open(exploring.address)
        wait.view(page)
        page.click("summary")
        numbers = page.get_by_label("numbers")
        assert numbers.locator("option").all_inner_texts() == ["weights", "norms", "gradient × weights"]
        for measure in ("gradients", "norms"):
            page.get_by_label("numbers").select_option(measure)
            wait.view(page)
            window.picture(page, f"explore-{measure}", whole=True)
        # the next text is shown by the same numbers
        page.fill("#text", "bad")
        wait_for_status(page, translated := translator.translate("bad"))
        assert page.get_by_label("numbers").input_value() == "norms"
        maps = translator.map("bad", translated)
        norms = maps[[name for name in maps if name.endswith("cross_attention")][-1]].weights.norms()
        page.wait_for_timeout(1000)
        wait.view(page)
        wait.to_cell(page, 1, 1)
        value = page.locator(".zoom .readout").get_attribute("data-value")
        assert float(value) == pytest.approx(norms[0, :, 1, 1].mean().item(), rel=1e-3)


def test_a_text_is_continued_and_another_token_is_gone_on_from(
    window: Any, generator: TextGenerator, wait: Any
) -> None:
    short = TextGenerator(generator.model, generator.tokenizer, context=8)
    # never while the server's threads are in the same model
    first = short.generate("the dog", GenerationSettings(max_new_tokens=6)).text
    explorer = Explorer([LoadedRun("captions", "text-generation", short)], text="the dog")
    with ExploreServer(explorer, port=0) as exploring:
        page = window.open(exploring.address)
        wait.ended(page, first)
        assert page.locator(".read li bdi").count() == 3
        label = "the continuation; select a token to replace it"
        assert page.locator(".written").get_attribute("aria-label") == label
        # the fourth row is that of the first token that was written
        page.locator(".written button").nth(0).focus()
        wait.until(page, "document.querySelector('.zoom .readout').dataset.row === '3'")
        page.locator(".written button").nth(0).click()
        offer = page.locator(".offers button bdi").nth(1).inner_text()
        second = short.generate(f"the dog {offer}", GenerationSettings(max_new_tokens=5)).text
        page.locator(".offers button").nth(1).click()
        page.wait_for_selector(".written .forced")
        wait.ended(page, second)
        wait.view(page)
        window.check()
