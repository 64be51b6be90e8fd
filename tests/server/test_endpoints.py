"""LibreTranslate's contract beyond the frozen answers: white space, languages, links, methods, and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from attent.server.app import Metrics

Serve = Callable[..., TestClient]
ASK = {"q": "a dog runs", "source": "en", "target": "de"}


def test_outside_json_lines_end_as_in_unix(serve: Serve) -> None:
    client = serve()
    assert client.post("/translate", data=ASK | {"q": "...\r\n\r..."}).json() == {"translatedText": "...\n\n..."}
    assert client.post("/translate", json=ASK | {"q": "...\r\n..."}).json() == {"translatedText": "...\r\n..."}


def test_white_space_around_sentences_stays(serve: Serve, translators: dict) -> None:
    first, second = translators["en:de"].translate(["A dog runs.", "Two men sit."])
    answer = serve().post("/translate", json=ASK | {"q": "  A dog runs.  Two men sit.\n\n\t!!! \n"})
    assert answer.json()["translatedText"] == f"  {first}  {second}\n\n\t!!! \n"


@pytest.mark.parametrize(("text_format", "space"), [("text", " "), ("html", "\t")])
def test_long_white_space_holds_nobody_up(serve: Serve, text_format: str, space: str) -> None:
    client, text, begin = serve(char_limit=-1), f"A dog.{space * 2_000_000}Two men.", time.process_time()
    answer = client.post("/translate", json=ASK | {"q": text, "format": text_format})
    assert answer.status_code == 200 and space * 1_000 in answer.json()["translatedText"]
    # it took hours
    assert time.process_time() - begin < 10


def test_what_has_no_language_is_of_one_that_has_a_run(serve: Serve) -> None:
    # of German, the first in the alphabet, there is no run to German, and of French none to English
    client = serve()
    for target, source, form in (("de", "en", "text"), ("en", "de", "html")):
        ask = {"q": ["😀🎉", "", "...", "12"], "source": "auto", "target": target, "format": form}
        answer = client.post("/translate", json=ask)
        assert answer.status_code == 200 and answer.json()["translatedText"][:3] == ask["q"][:3]
        assert answer.json()["detectedLanguage"] == [{"confidence": 0.0, "language": source}] * 4


def test_words_are_linked_across_sentences(serve: Serve) -> None:
    answer = serve().post("/translate", json=ASK | {"q": "A dog. Two men.", "alignment": True}).json()
    links = [tuple(map(int, link.split("-"))) for link in answer["alignment"].split()]
    assert links and {source for source, _ in links} <= set(range(4))
    assert max(target for _, target in links) < len(answer["translatedText"].split())


def test_a_sentence_whose_weights_would_take_too_much_memory_is_not_aligned(serve: Serve) -> None:
    client = serve(char_limit=5000)
    error = "Invalid request: a sentence of 2,049 tokens is too long to align: the limit is 2,048"
    html = {"format": "html", "q": f"<b>a</b>{'a' * 2048}"}
    for change in ({"alignment": True}, html, {"glossary": {"b": "1"}}):
        answer = client.post("/translate", json=ASK | {"q": "a" * 2049} | change)
        assert (answer.status_code, answer.json()) == (400, {"error": error})
    assert client.post("/translate", json=ASK | {"q": "a" * 2049}).status_code == 200


def test_a_body_that_is_no_json_object_is_refused(serve: Serve) -> None:
    client = serve()
    for body in (b"{", b'"text"', b"[" * 100_000, b"\xff"):
        answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})


def test_web_pages_may_ask(serve: Serve) -> None:
    client = serve(allow_origin="https://example.org")
    for answer in (client.options("/translate"), client.post("/translate", json={})):
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        assert answer.headers["access-control-allow-methods"] == "GET, POST"
        assert answer.headers["access-control-max-age"] == "1728000"


def test_the_page_of_metrics_counts_requests_and_sentences_and_names_no_texts(serve: Serve) -> None:
    client = serve(metrics_auth_token="secret")
    client.post("/translate", json=ASK)
    assert client.get("/metrics").status_code == 401
    page = client.get("/metrics", headers={"authorization": "Bearer secret"}).text
    lines = {
        'attent_requests_total{endpoint="/translate",status="200"} 1.0',
        'attent_request_seconds_count{endpoint="/translate"} 1.0',
        'attent_sentences_total{source="en",target="de"} 1.0',
        f"attent_characters_total {float(len(ASK['q']))}",
        *(f"attent_{name}_count 1.0" for name in ("batch_sentences", "batch_seconds", "queue_seconds")),
    }
    assert lines <= set(page.splitlines())
    assert "dog" not in page


def test_metrics_are_sums_of_all_batches() -> None:
    metrics = Metrics(lambda: 5, lambda: 7)
    metrics.observe_batch(("en", "de"), 2, 30, 0.25, 1.5)
    metrics.observe_batch(("en", "de"), 1, 4, 0.5, 0.125)
    metrics.observe_request("/detect", 429, 0.75)
    lines = {
        'attent_sentences_total{source="en",target="de"} 3.0',
        "attent_characters_total 34.0",
        "attent_batch_sentences_sum 3.0",
        'attent_batch_sentences_bucket{le="1.0"} 1.0',
        "attent_batch_seconds_sum 0.75",
        "attent_queue_seconds_sum 1.625",
        "attent_running_sentences 5.0",
        "attent_waiting_sentences 7.0",
        'attent_request_seconds_sum{endpoint="/detect"} 0.75',
        'attent_requests_total{endpoint="/detect",status="429"} 1.0',
    }
    assert lines <= set(metrics.text().decode().splitlines())
