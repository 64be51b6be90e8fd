"""LibreTranslate's contract: every endpoint, way of sending parameters, status and error text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

Serve = Callable[..., TestClient]
ASK = {"q": "a dog runs", "source": "en", "target": "de"}


def test_every_way_to_send_parameters_has_the_same_answer(serve: Serve, translators: dict) -> None:
    client, expected = serve(), translators["en:de"].translate("a dog runs")
    answers = [
        client.post("/translate", json=ASK),
        client.post("/translate", data=ASK),
        client.post("/translate", params=ASK),
        client.post("/translate/", data=ASK),
        client.post("/translate", files={name: (None, value) for name, value in ASK.items()}),
    ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"translatedText": expected})] * len(
        answers
    )


def test_a_list_has_a_list(serve: Serve, translators: dict) -> None:
    client, texts = serve(), ["a dog", "two men"]
    expected = translators["en:de"].translate(texts)
    for form in ({"json": ASK | {"q": texts}}, {"data": ASK | {"q": texts}}, {"params": ASK | {"q": texts}}):
        assert client.post("/translate", **form).json() == {"translatedText": expected}
    assert client.post("/translate", json=ASK | {"q": texts[:1]}).json() == {"translatedText": expected[:1]}


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


def test_symbols_alone_come_back(serve: Serve) -> None:
    assert serve().post("/translate", json=ASK | {"q": "😀 🎉!"}).json() == {"translatedText": "😀 🎉!"}


def test_what_has_no_language_is_of_one_that_has_a_run(serve: Serve) -> None:
    # of German, the first in the alphabet, there is no run to German, and of French none to English
    client = serve()
    for target, source in (("de", "en"), ("en", "de")):
        for form in ("text", "html"):
            ask = {"q": ["😀🎉", "", "...", "12"], "source": "auto", "target": target, "format": form}
            answer = client.post("/translate", json=ask)
            assert answer.status_code == 200 and answer.json()["translatedText"][:3] == ask["q"][:3]
            assert answer.json()["detectedLanguage"] == [{"confidence": 0.0, "language": source}] * 4


def test_alternatives_come_where_they_are_asked_for(serve: Serve) -> None:
    client = serve()
    payload = client.post("/translate", json=ASK | {"alternatives": 3}).json()
    assert 0 < len(payload["alternatives"]) <= 3 and payload["translatedText"] not in payload["alternatives"]
    batch = client.post("/translate", data=ASK | {"q": ["a dog", "men"], "alternatives": "2"}).json()
    assert [len(item) <= 2 for item in batch["alternatives"]] == [True, True]
    assert "alternatives" not in client.post("/translate", json=ASK | {"alternatives": 0}).json()


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
    error = "Invalid request: a sentence of 2,049 tokens is too long to be aligned; at most 2,048 are"
    assert (answer.status_code, answer.json()) == (400, {"error": error})
    assert client.post("/translate", json=ASK | {"q": "a" * 2049}).status_code == 200


def test_html_keeps_its_tags(serve: Serve) -> None:
    client = serve()
    html = '<p class="x">A <b>dog</b> runs.<br>Two <a href="/y?a=1&amp;b=2">men</a> sit.</p><pre>A dog</pre>'
    for form in (
        {"json": ASK | {"q": html, "format": "html"}},
        {"data": ASK | {"q": html, "format": "html", "alternatives": "2"}},
    ):
        answer = client.post("/translate", **form).json()
        for text in (answer["translatedText"], *answer.get("alternatives", ())):
            assert sorted(re.findall("<[^>]*>", text)) == sorted(re.findall("<[^>]*>", html))
            assert text.startswith('<p class="x">') and text.endswith("</p><pre>A dog</pre>")
    batch = client.post("/translate", json=ASK | {"q": [html, "<i>a</i>"], "format": "html"}).json()["translatedText"]
    assert batch[0] == client.post("/translate", json=ASK | {"q": html, "format": "html"}).json()["translatedText"]
    assert client.post("/translate", json=ASK | {"q": "<b>x", "source": "auto", "format": "html"}).status_code == 200


def test_languages_and_settings(serve: Serve) -> None:
    client = serve(char_limit=7)
    assert client.request("GET", "/languages", data={"api_key": "x"}).json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "fr", "name": "French", "targets": ["de"]},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 7
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert {
        "frontendTimeout",
        "apiKeys",
        "keyRequired",
        "suggestions",
        "filesTranslation",
        "supportedFilesFormat",
    } < settings.keys()
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"target": "en"}, "English (en) is not available as a target language from French (fr)"),
        ({"format": "xyz"}, "xyz format is not supported"),
        ({"alternatives": "two"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": -1}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 6}, "Invalid request: alternatives parameter must be <= 5"),
        ({"q": "a" * 21}, "Invalid request: request (21) exceeds text limit (20)"),
        ({"q": ["a", "b", "c", "d"]}, "Invalid request: request (4) exceeds text limit (3)"),
        ({"q": ["a", 1]}, "Invalid request: q parameter is not a string or a list of strings"),
        ({"alignment": "perhaps"}, "Invalid request: alignment parameter is not true or false"),
    ],
)
def test_wrong_requests_are_answered_in_the_words_that_clients_know(serve: Serve, change: dict, error: str) -> None:
    values = {
        name: value for name, value in (ASK | {"source": "fr", "q": "chien"} | change).items() if value is not None
    }
    answer = serve(char_limit=20, batch_limit=3).post("/translate", json=values)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


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


def test_too_large_a_body_is_not_read(serve: Serve) -> None:
    client = serve(char_limit=10, disable_files_translation=True)
    answer = client.post("/translate", json=ASK | {"q": "a" * 200_000})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("Invalid request: a request may have at most")


def test_numbers_name_no_texts(serve: Serve) -> None:
    client = serve(metrics_auth_token="secret")
    client.post("/translate", json=ASK)
    assert client.get("/metrics").status_code == 401
    text = client.get("/metrics", headers={"authorization": "Bearer secret"}).text
    assert 'attent_requests_total{endpoint="/translate",status="200"} 1.0' in text
    assert "attent_sentences_total 1.0" in text
    assert f"attent_characters_total {float(len(ASK['q']))}" in text
    assert "dog" not in text
