"""The page of a translator of words: those that it knows, and those that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _live_page import ended, written

from attent.tasks.loading import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(translating: Any) -> Path:
    return translating("transformer", words=True)


def written_words(translator: Any, text: str) -> list[str]:
    return [piece.strip() for piece in written(translator, text)[0]]


def test_the_words_of_a_small_vocabulary_are_listed_and_added_to_the_text(
    run: Path, translating: Any, live: Any, window: Any
) -> None:
    translator = load(run)
    page = window.open(live(run, ["the dog"]))
    ended(page, written_words(translator, "the dog"))
    summary, words = page.locator(".known summary"), page.locator(".known button")
    assert summary.inner_text() == "This model knows 4 words" and not words.first.is_visible()
    # it is text of the page's own size and color
    style = "(node) => ['fontSize', 'color'].map((name) => getComputedStyle(node)[name])"
    assert summary.evaluate(style) == page.locator("body").evaluate(style)
    summary.focus()
    for key in ("Enter", "Tab"):
        page.keyboard.press(key)
    assert words.all_inner_texts() == ["black", "dog", "sings", "the"]
    assert window.serious_faults(page) == []
    for key in ("End", "Enter", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert page.input_value("#text") == "the dog the sings"
    ended(page, written_words(translator, "the dog the sings"))
    page.fill("#text", "")
    words.first.click()
    assert page.input_value("#text") == "black"
    ended(page, written_words(translator, "black"))
    # of a vocabulary of characters, none are
    page = window.open(live(translating("transformer"), ["bad cab"]))
    page.wait_for_selector(".zoom canvas")
    assert page.locator(".known").count() == 0


def test_unknown_words_are_named_on_a_line_before_the_translation_and_underlined(
    run: Path, live: Any, window: Any
) -> None:
    translator, text = load(run), "my red dog, my dog"
    page = window.open(live(run, [text]))
    ended(page, written_words(translator, text))
    notice, *translation = page.inner_text(".run .status").splitlines()
    assert notice == "not known to this model, so the rest is a guess: my, red"
    assert translation == [translator.target_tokenizer.decode(written(translator, text)[1])]
    unknown = page.locator(".read .unknown")
    assert unknown.all_inner_texts() == ["my", "red", "my"]
    assert unknown.first.get_attribute("title") == "not known to this model"
    assert "dotted" in unknown.first.locator("bdi").evaluate("(node) => getComputedStyle(node).textDecoration")
    page.fill("#text", "the dog")
    ended(page, written_words(translator, "the dog"))
    assert page.locator(".notice").count() == unknown.count() == 0
