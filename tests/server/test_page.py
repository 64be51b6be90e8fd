"""The page of a translation server in a real browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from attent.server.app import Metrics, application
from attent.server.batcher import Batcher
from attent.server.catalog import RunCatalog
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings
from attent.web import listen

pytestmark = pytest.mark.slow
FRENCH = "Un chat? Deux chats. Zebra court."
SIZES = pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])


@contextmanager
def serving(catalog: RunCatalog, **settings: object) -> Iterator[str]:
    """A server in a thread; its address."""
    chosen = ServerSettings(**settings)
    batcher, listener = Batcher(chosen), listen("127.0.0.1", 0)
    app = application(TranslationService(chosen, catalog, batcher), Metrics(lambda: 0, lambda: 0))
    server = uvicorn.Server(uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_level="error"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    batcher.close()
    listener.close()


def until(page: Any, condition: str, value: object = None) -> None:
    """Wait for an expression; playwright's own way is what the page's policy forbids, to evaluate text."""
    for _ in range(300):
        if page.evaluate(condition, value):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{condition} of {value!r} never came to be; the page says {page.locator('.status').all_inner_texts()}")


def translated(page: Any, text: str) -> None:
    until(page, "text => document.querySelector('#translation:not([aria-busy])')?.textContent === text", text)


@SIZES
def test_what_is_typed_is_translated_and_words_are_linked(
    catalog: RunCatalog, translators: dict, window: Any, size: tuple[int, int], dark: bool
) -> None:
    expected = translators["fr:de"].translate(["Un chat?", "Deux chats.", "Zebra court."])
    with serving(catalog) as address:
        page = window.open(address, size=size, dark=dark)
        page.select_option("#source", "fr")
        page.type("#text", FRENCH)
        translated(page, " ".join(expected))
        words = page.locator(".words").nth(1).locator(".word")
        assert page.locator(".words").first.locator(".word").all_inner_texts() == FRENCH.split()
        assert words.all_inner_texts() == " ".join(expected).split()
        # a word of the translation that has a counterpart
        words.first.hover()
        marked = page.locator(".word[aria-selected='true']")
        assert marked.count() >= 1 and marked.first.get_attribute("data-side") == "0"
        assert marked.first.inner_text() in page.locator(".readout").inner_text()
        window.picture(page, f"translate-{size[0]}", whole=True)
        # the same by keys
        page.locator("#text").focus()
        page.locator(".words").nth(1).locator("[tabindex='0']").focus()
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.dataset.index") == str(len(" ".join(expected).split()) - 1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # the rest of the page goes away with the text
        page.fill("#text", "")
        translated(page, "")
        assert page.locator(".links").is_hidden()
        assert all(request.startswith(address) for request in window.requests if not request.startswith("data:"))


def test_languages_alternatives_and_a_detected_language(catalog: RunCatalog, translators: dict, window: Any) -> None:
    with serving(catalog) as address:
        page = window.open(address)
        until(page, "document.querySelector('#source')")
        assert page.locator("#source option").all_inner_texts() == ["Detect language", "German", "English", "French"]
        text = "les chiens courent dans la rue avec les enfants"
        page.select_option("#target", "de")
        page.fill("#text", text)
        translated(page, translators["fr:de"].translate(text))
        until(page, "/seems to be French/.test(document.querySelector('.status').textContent)")
        # nothing translates German to French
        assert page.locator("#swap").is_disabled()
        page.check("text=alternatives")
        until(page, "document.querySelectorAll('.alternatives li').length > 0")
        page.uncheck("text=alternatives")
        page.select_option("#source", "en")
        page.fill("#text", "zebra")
        translated(page, german := translators["en:de"].translate("zebra"))
        page.click("#swap")
        until(page, "text => document.querySelector('#text').value === text", german)
        assert (page.input_value("#source"), page.input_value("#target")) == ("de", "en")


def test_text_is_never_markup_and_runs_its_own_way(catalog: RunCatalog, window: Any) -> None:
    with serving(catalog) as address:
        page = window.open(address)
        page.select_option("#source", "fr")
        page.fill("#text", "<img src=x onerror=alert(1)> zebra")
        until(page, "document.querySelectorAll('.words .word').length > 3")
        assert page.locator("#translate img").count() == 0
        page.fill("#text", "مرحبا بالعالم")
        assert page.evaluate("getComputedStyle(document.querySelector('#text')).direction") == "rtl"
        until(page, "getComputedStyle(document.querySelector('.words')).direction === 'rtl'")


def test_errors_are_said_in_plain_words(catalog: RunCatalog, translators: dict, window: Any, tmp_path: Any) -> None:
    (tmp_path / "keys").write_text("secret\n")
    with serving(catalog, api_keys_file=tmp_path / "keys", require_api_key=True, char_limit=20) as address:
        page = window.open(address)
        page.select_option("#source", "fr")
        page.fill("#text", "zebra")
        until(page, "/needs an API key/.test(document.querySelector('[role=alert]')?.textContent)")
        page.fill("#key", "secret")
        page.keyboard.press("Enter")
        translated(page, translators["fr:de"].translate("zebra"))
        page.fill("#text", "a" * 25)
        message = "/longer than this server takes at once, by 5/"
        until(page, f"{message}.test(document.querySelector('[role=alert]')?.textContent)")
        assert "Failed to load resource: the server responded with a status of 400" in window.wrong.pop()
        assert page.evaluate("localStorage.length") == 0
