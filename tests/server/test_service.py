"""Texts on their way through the service."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from attent.search.search import Translation
from attent.server.catalog import RunCatalog, RunEntry
from attent.server.service import TranslationService, WordCount
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.translator import Translator
from attent.text.sentences import Detection

Serve = Callable[..., TestClient]


def test_words_are_counted_as_a_text_grows() -> None:
    generator = random.Random(7)
    for _ in range(300):
        count, text = WordCount(), ""
        for _ in range(5):
            piece = "".join(generator.choices("ab \n\N{NO-BREAK SPACE}", k=generator.randrange(3)))
            count.add(piece)
            text += piece
            assert count.next_word == len(f"{text}x".split()) - 1


@pytest.mark.parametrize("source", ["en", "auto"])
def test_a_run_that_is_replaced_meanwhile_translates_no_text_of_a_request(
    serve: Serve, catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    use, used = catalog.use, list[object]()

    def use_another(entry: RunEntry) -> object:
        run = use(entry)
        used.append(replace(run, translator=None) if used else run)
        return used[-1]

    client, values = serve(), {"q": ["A dog.", "Two dogs."], "source": "en", "target": "de"}
    expected = client.post("/translate", json=values).json()["translatedText"]
    monkeypatch.setattr(catalog, "use", use_another)
    # a check of the languages precedes the texts
    monkeypatch.setattr(TranslationService, "check_languages", lambda *arguments: None)
    monkeypatch.setattr(TranslationService, "detect_source", lambda *arguments: Detection("en", 90.0))
    assert client.post("/translate", json=values | {"source": source}).json()["translatedText"] == expected


def test_a_request_with_markup_does_not_wait_for_another_one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    align, are_both = Alignment.of, threading.Barrier(2)

    def meet(translator: Translator, translations: Sequence[Translation], *arguments: Any) -> list[Alignment]:
        # the second would never come if the first held a lock
        are_both.wait(2)
        return align(translator, translations, *arguments)

    monkeypatch.setattr(Alignment, "of", meet)
    client = serve(threads=2, window=0.0, batch=1)

    def ask(source: str) -> int:
        values = {"q": "<b>A</b> dog.", "source": source, "target": "de", "format": "html"}
        return client.post("/translate", json=values).status_code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, ("en", "fr"))) == [200, 200]


def test_languages_without_a_route_are_named(
    serve: Serve, catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "route", lambda source, target: [])
    answer = serve().post("/translate", json={"q": "a", "source": "fr", "target": "de"})
    expected = {"error": "German (de) is not available as a target language from French (fr)"}
    assert (answer.status_code, answer.json()) == (400, expected)
