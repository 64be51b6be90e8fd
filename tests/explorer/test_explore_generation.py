"""The page of `attent explore` with a language model, in a browser."""

from __future__ import annotations

from typing import Any

from attent.explorer.explorer import Explorer
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.server import ExploreServer
from attent.search.settings import GenerationSettings
from attent.tasks.text_generation.text_generator import TextGenerator


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
        label = "the continuation; a token that is chosen can be changed"
        assert page.locator(".written").get_attribute("aria-label") == label
        # the fourth row is that of the first token that was written
        page.locator(".written button").nth(0).focus()
        message = "document.querySelector('.tokens .readout').textContent.includes(' (row 3) looks back at: ')"
        wait.until(page, message)
        page.locator(".written button").nth(0).click()
        offer = page.locator(".offers button bdi").nth(1).inner_text()
        second = short.generate(f"the dog{offer.replace('␣', ' ')}", GenerationSettings(max_new_tokens=5)).text
        page.locator(".offers button").nth(1).click()
        page.wait_for_selector(".written .forced")
        wait.ended(page, second)
        wait.view(page)
        window.check()
