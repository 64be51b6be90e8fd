"""LibreTranslate's contract: every endpoint, way of sending parameters, status and error text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

Serve = Callable[..., TestClient]
ASK = {"q": "a dog runs", "source": "en", "target": "de"}


def test_outside_json_lines_end_as_in_unix(serve: Serve) -> None:
    client = serve()
    assert client.post("/translate", data=ASK | {"q": "...\r\n\r..."}).json() == {"translatedText": "...\n\n..."}
    assert client.post("/translate", json=ASK | {"q": "...\r\n..."}).json() == {"translatedText": "...\r\n..."}


def test_what_surrounds_sentences_stays(serve: Serve, translators: dict) -> None:
    first, second = translators["en:de"].translate(["A dog runs.", "Two men sit."])
    text = (
        serve().post("/translate", json=ASK | {"q": "  A dog runs.  Two men sit.\n\n\t!!! \n"}).json()["translatedText"]
    )
    assert text == f"  {first}  {second}\n\n\t!!! \n"


@pytest.mark.parametrize("space", [" ", "\t"])
@pytest.mark.parametrize("text_format", ["text", "html"])
def test_long_white_space_holds_nobody_up(serve: Serve, text_format: str, space: str) -> None:
    client, text, begin = serve(char_limit=-1), f"A dog.{space * 2_000_000}Two men.", time.process_time()
    answer = client.post("/translate", json=ASK | {"q": text, "format": text_format})
    assert answer.status_code == 200 and space * 1_000 in answer.json()["translatedText"]
    # it took hours
    assert time.process_time() - begin < 10


def test_what_has_no_language_is_of_one_that_has_a_run(serve: Serve) -> None:
    # of German, the first in the alphabet, there is no run to German, and of French none to English
    client = serve()
    for target, source in (("de", "en"), ("en", "de")):
        for form in ("text", "html"):
            ask = {"q": ["😀🎉", "", "...", "12"], "source": "auto", "target": target, "format": form}
            answer = client.post("/translate", json=ask)
            assert answer.status_code == 200 and answer.json()["translatedText"][:3] == ask["q"][:3]
            assert answer.json()["detectedLanguage"] == [{"confidence": 0.0, "language": source}] * 4


def test_the_language_is_detected(serve: Serve) -> None:
    client = serve()
    text = {"q": "les chiens courent dans la rue avec les enfants", "source": "auto", "target": "de"}
    payload = client.post("/translate", json=text).json()
    assert payload["detectedLanguage"]["language"] == "fr" and 50 < payload["detectedLanguage"]["confidence"] <= 100
    batch = client.post("/translate", json=text | {"q": [text["q"], "the dogs are running in the street"]}).json()
    assert [item["language"] for item in batch["detectedLanguage"]] == ["fr", "en"]
    assert client.post("/detect", data={"q": text["q"]}).json()[0]["language"] == "fr"
    # a text of the target's language stays as it is
    german = "die Hunde laufen durch die Straßen und die Kinder spielen"
    assert client.post("/translate", json=text | {"q": german}).json()["translatedText"] == german


def test_words_are_linked_across_sentences(serve: Serve) -> None:
    answer = serve().post("/translate", json=ASK | {"q": "A dog. Two men.", "alignment": True}).json()
    links = [tuple(map(int, link.split("-"))) for link in answer["alignment"].split()]
    assert links and {source for source, _ in links} <= set(range(4))
    assert max(target for _, target in links) < len(answer["translatedText"].split())


@pytest.mark.parametrize(
    "change", [{"alignment": True}, {"format": "html", "q": f"<b>a</b>{'a' * 2048}"}, {"glossary": {"b": "1"}}]
)
def test_a_sentence_whose_weights_would_take_too_much_memory_is_not_aligned(serve: Serve, change: dict) -> None:
    client = serve(char_limit=5000)
    answer = client.post("/translate", json=ASK | {"q": "a" * 2049} | change)
    error = "Invalid request: a sentence of 2,049 tokens is too long to align: the limit is 2,048"
    assert (answer.status_code, answer.json()) == (400, {"error": error})
    assert client.post("/translate", json=ASK | {"q": "a" * 2049}).status_code == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(serve: Serve, body: bytes) -> None:
    answer = serve().post("/translate", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})


def test_a_wrong_method_and_an_unknown_path(serve: Serve) -> None:
    client = serve()
    assert (client.get("/translate").status_code, client.get("/translate").json()) == (
        405,
        {"error": "Method Not Allowed"},
    )
    assert (client.get("/nothing").status_code, client.get("/nothing").json()) == (404, {"error": "Not Found"})
    assert (client.post("/suggest", data=ASK | {"s": "x"}).status_code) == 403


def test_web_pages_may_ask(serve: Serve) -> None:
    client = serve(allow_origin="https://example.org")
    for answer in (
        client.options("/translate"),
        client.post("/translate", json=ASK),
        client.post("/translate", json={}),
    ):
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        assert answer.headers["access-control-allow-methods"] == "GET, POST"
        assert answer.headers["access-control-max-age"] == "1728000"


def test_numbers_name_no_texts(serve: Serve) -> None:
    client = serve(metrics_auth_token="secret")
    client.post("/translate", json=ASK)
    assert client.get("/metrics").status_code == 401
    text = client.get("/metrics", headers={"authorization": "Bearer secret"}).text
    assert 'attent_requests_total{endpoint="/translate",status="200"} 1.0' in text
    assert "attent_sentences_total 1.0" in text
    assert f"attent_characters_total {float(len(ASK['q']))}" in text
    assert "dog" not in text
