"""Terms of requests, and of the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from starlette.testclient import TestClient

from attent.server.catalog import RunCatalog
from attent.tasks.translation.glossary import MAX_ENTRIES, Glossary, missing

Serve = Callable[..., TestClient]
ASK = {"q": ["a dog runs", "two men"], "source": "en", "target": "de"}


def test_terms_of_a_request_are_translated_as_told(serve: Serve, translators: dict) -> None:
    client, plain = serve(), translators["en:de"].translate(ASK["q"])
    for form in (
        {"json": ASK | {"glossary": [["dog", "12 3"]]}},
        {"json": ASK | {"glossary": {"dog": "12 3"}}},
        {"data": ASK | {"glossary": json.dumps([["dog", "12 3"]])}},
    ):
        first, second = client.post("/translate", **form).json()["translatedText"]
        assert not missing(first, ["12 3"]) and second == plain[1]
    for empty in ([], {}, "", None):
        assert client.post("/translate", json=ASK | {"glossary": empty}).json() == {"translatedText": plain}


def test_terms_of_the_server_come_after_those_of_a_request(serve: Serve, catalog: RunCatalog) -> None:
    catalog.route("en", "de")[0].glossary = Glossary((("dog", "1 1"), ("men", "5 5")))
    client = serve()
    first, second = client.post("/translate", json=ASK).json()["translatedText"]
    assert not missing(first, ["1 1"]) and not missing(second, ["5 5"])
    first, second = client.post("/translate", json=ASK | {"glossary": {"dog": "3 3"}}).json()["translatedText"]
    assert not missing(first, ["3 3"]) and not missing(second, ["5 5"])
    text = client.post("/translate", json=ASK | {"q": "a dog", "stream": True}).text
    assert "1 1" in text


def test_a_large_glossary_of_the_server_holds_up_no_request(serve: Serve, catalog: RunCatalog) -> None:
    catalog.route("en", "de")[0].glossary = Glossary(tuple((f"dog{number}", "1") for number in range(MAX_ENTRIES)))
    client, begin = serve(), time.process_time()
    answer = client.post("/translate", json=ASK | {"q": ["..."] * 50, "glossary": {"dog": "3 3"}})
    assert answer.status_code == 200
    # it took a quarter of a second for each text
    assert time.process_time() - begin < 3


def test_invalid_glossaries_are_refused(serve: Serve) -> None:
    client = serve()
    for glossary, problem in (
        ("[", "glossary parameter is not JSON"),
        (["dog"], "glossary parameter is not a list of pairs"),
        ([["dog", 1]], "glossary parameter is not a list of pairs"),
        (7, "glossary parameter is not a list of pairs"),
        ([["dog", "12"]] * 2, "glossary parameter: term 2: 'dog' is term 1 already"),
        ([["dog", "1" * 201]], "glossary parameter: term 1: its target has 201 characters, more than 200"),
        ([[f"d{number}", "1"] for number in range(201)], "glossary parameter must have <= 200 terms"),
        ({"dog": "Hund"}, "the run cannot write the term 'Hund'"),
    ):
        answer = client.post("/translate", json=ASK | {"glossary": glossary})
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(f"Invalid request: {problem}")
