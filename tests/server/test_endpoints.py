"""LibreTranslate's contract beyond the frozen answers: white space, languages, links, methods, and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from attent.errors import ArgumentError
from attent.server.app import Metrics
from attent.tasks.translation.calibration import SENTENCE, WORD, Calibration, Regression
from attent.tasks.translation.confidence import NOT_CALIBRATED, Confidence

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


def test_confidence_is_told_and_a_minimum_leaves_sentences_as_they_are(serve: Serve, translators: dict) -> None:
    client, ask = serve(), ASK | {"q": "A dog. Two men."}
    error = {"error": f"Invalid request: confidence needs {NOT_CALIBRATED}"}
    for change in ({"confidence": True}, {"minimum_confidence": 0.5}):
        answer = client.post("/translate", json=ask | change)
        assert (answer.status_code, answer.json()) == (400, error)
    with calibrated(translators):
        plain = client.post("/translate", json=ask | {"minimum_confidence": 0}).json()
        assert "confidence" not in plain
        told = client.post("/translate", json=ask | {"confidence": True}).json()
        assert told["translatedText"] == plain["translatedText"]
        first, second = told["confidence"]
        assert first["text"] + " " + second["text"] == plain["translatedText"]
        assert [word for word, _ in first["words"]] == first["text"].split() and first["translated"]
        low, high = sorted((first, second), key=lambda sentence: sentence["confidence"])
        assert 0 < low["confidence"] < high["confidence"] < 1
        # the same numbers as in Python
        translator = translators["en:de"]
        (expected,) = Confidence.of(translator, [translator.search("A dog.")[0]])
        assert expected is not None and first["confidence"] == expected.confidence
        limit = {"minimum_confidence": high["confidence"]}
        for form in ({"json": ask | limit}, {"data": ask | limit}):
            parted = client.post("/translate", **form).json()
            texts = [sentence["text"] for sentence in parted["confidence"]]
            assert [sentence["translated"] for sentence in parted["confidence"]] == [first is high, second is high]
            assert texts[first is high] == ("Two men." if first is high else "A dog.")
            assert parted["translatedText"] == " ".join(texts)
        html = {"q": "<p>A <b>dog</b>.</p>", "format": "html", "minimum_confidence": 1}
        answer = client.post("/translate", json=ask | html).json()
        assert answer["translatedText"] == html["q"] and not answer["confidence"][0]["translated"]
        listed = client.post("/translate", json=ask | {"q": ["A dog.", ""], "confidence": True}).json()["confidence"]
        assert [len(sentences) for sentences in listed] == [1, 0]


def test_a_server_may_have_a_minimum(serve: Serve, translators: dict) -> None:
    with pytest.raises(ArgumentError, match="--minimum-confidence needs a run calibrated with its current weights"):
        serve(minimum_confidence=0.5)
    with calibrated(translators):
        client = serve(minimum_confidence=1.0)
        answer = client.post("/translate", json=ASK | {"q": "A dog."}).json()
        assert answer["translatedText"] == "A dog." and not answer["confidence"][0]["translated"]
        events = client.post("/translate", json=ASK | {"q": "A dog.", "stream": True}).text
        assert '"piece": "A dog."' in events and '"translated": false' in events
        # a request may choose another one
        answer = client.post("/translate", json=ASK | {"q": "A dog.", "minimum_confidence": 0}).json()
        assert answer == {"translatedText": translators["en:de"].translate("A dog.")}


@pytest.mark.parametrize("value", [-0.1, 1.1, "x", "nan", 1e400])
def test_a_minimum_is_a_number_from_0_to_1(serve: Serve, value: object) -> None:
    answer = serve().post("/translate", data=ASK | {"q": "A dog.", "minimum_confidence": value})
    problem = "Invalid request: minimum_confidence parameter is not a number from 0 to 1"
    assert (answer.status_code, answer.json()) == (400, {"error": problem})


@contextmanager
def calibrated(translators: dict) -> Iterator[None]:
    """Give all translators a calibration, by which the longer sentence has the lower confidence."""
    sentence, word = (dict.fromkeys(names, 0.0) | {"loss": -0.3} for names in (SENTENCE, WORD))
    fitted = Calibration(
        weights=None,
        label="by hand",
        pairs=1,
        sentence=Regression(bias=0, weights=sentence),
        word=Regression(bias=0, weights=word),
        mean=[0.0] * 16,
        scale=[1.0] * 16,
        coverage=0,
    )
    for translator in translators.values():
        translator.calibration = fitted
    yield
    for translator in translators.values():
        translator.calibration = None
