"""Heads that are switched off on the page of `attent explore`: its requests, and in a browser."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

import attent
from attent.errors import ArgumentError, UnknownNameError
from attent.explorer.explorer import MAX_HEADS, Explorer, SwitchedHead, TextRequest, TranslateRequest
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.server import ExploreServer
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.translator import Translator

CROSS = "decoder.layers.1.cross_attention"
OFF = (SwitchedHead(module=CROSS, head=0), SwitchedHead(module=CROSS, head=1))


def without_heads(translator: Translator, text: str, heads: tuple[int, ...]) -> str:
    """A translation with some heads of the last cross-attention set to zero."""
    with attent.intervene(translator.model, {CROSS: dict.fromkeys(heads, "zero")}):
        return translator.translate(text)


@pytest.mark.parametrize("beam", [1, 2])
def test_a_translation_without_heads_is_that_of_such_a_model(
    explorer: Explorer, translator: Translator, beam: int
) -> None:
    *_, whole = explorer.translate(TranslateRequest(text="abc", beam=beam))
    *_, end = explorer.translate(TranslateRequest(text="abc", beam=beam, off=OFF))
    if beam == 1:
        assert end["text"] == without_heads(translator, "abc", (0, 1))
        assert whole["text"] == translator.translate("abc")
    weights = explorer.scenes[end["scene"]].group("cross").layers[1].weights
    assert weights.shape[1] == 2
    assert [*explorer.translate(TranslateRequest(text="abc", beam=beam))][-1]["text"] == whole["text"]


def test_blanks_are_filled_without_heads(explorer: Explorer, filler: FillMask) -> None:
    text, off = "the dog was [MASK] .", (SwitchedHead(module="encoder.layers.0.self_attention", head=1),)
    answer = explorer.fill(TextRequest(run=1, text=text, off=off))
    with attent.intervene(filler.model, {off[0].module: {1: "zero"}}):
        expected = filler.fill(text, 5)
    assert [guess["word"] for guess in answer["blanks"][0]["guesses"]] == [guess.word for guess in expected[0].guesses]


def test_heads_that_are_not_there_are_refused(explorer: Explorer) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown attention of Transformer 'decoder\.x'"):
        next(explorer.translate(TranslateRequest(text="abc", off=(SwitchedHead(module="decoder.x", head=0),))))
    events = explorer.translate(TranslateRequest(text="abc", off=(SwitchedHead(module=CROSS, head=2),)))
    with pytest.raises(ArgumentError, match=f"^the head of {CROSS} must be from 0 to 1, got 2$"):
        list(events)
    wrong_heads = [{"module": CROSS, "head": -1}, {"module": CROSS, "head": MAX_HEADS}]
    for wrong in (*wrong_heads, {"module": "x" * 501, "head": 0}, {"head": 0}):
        with pytest.raises(ValidationError):
            SwitchedHead.model_validate(wrong)
    with pytest.raises(ValidationError):
        TextRequest.model_validate({"text": "abc", "off": [OFF[0].model_dump()] * (MAX_HEADS + 1)})


@pytest.mark.slow
def test_a_click_and_a_key_switch_heads_off_and_on(window: Any, translator: Translator, wait: Any) -> None:
    run = LoadedRun("dates", "translate", copy.deepcopy(translator))
    with ExploreServer(Explorer([run], text="abc"), port=0) as exploring:
        page = window.open(exploring.address)
        wait.ended(page, translator.translate("abc"))
        heads = page.locator(".heads .row").nth(2).locator("button")  # layer 1 of cross-attention
        assert page.locator("button.switch").is_hidden()
        heads.nth(0).click()
        page.locator("button.switch").click()
        wait.ended(page, f"{without_heads(translator, 'abc', (0,))} (without 1 head)")
        assert heads.nth(0).get_attribute("title") == "switched off"
        assert page.locator("button.switch").inner_text() == "switch on head 0"
        wait.until(page, "document.activeElement.matches('button.switch')")
        # by the keyboard the next one, from the head that has the focus
        heads.nth(1).focus()
        page.keyboard.press("x")
        wait.ended(page, f"{without_heads(translator, 'abc', (0, 1))} (without 2 heads)")
        assert page.locator(".head.off").count() == 2
        wait.until(page, "document.activeElement.matches('.head.off')")
        page.keyboard.press("x")
        wait.ended(page, f"{without_heads(translator, 'abc', (0,))} (without 1 head)")
        heads.nth(1).click(modifiers=["Shift"])
        wait.ended(page, f"{without_heads(translator, 'abc', (0, 1))} (without 2 heads)")
        page.locator("button", has_text="switch all on (2)").click()
        wait.ended(page, translator.translate("abc"))
        assert page.locator(".head.off").count() == 0
        window.check()
