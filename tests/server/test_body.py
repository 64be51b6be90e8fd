"""Parameters of requests."""

import asyncio
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from urllib.parse import unquote_plus

import pytest
from starlette.testclient import TestClient

from attent.server import body
from attent.server.body import MAX_KIND, SPARE_FIELDS, TranslateParameters
from attent.server.errors import RequestError
from attent.server.settings import SPARE, ServerSettings

Serve = Callable[..., TestClient]
ASK = {"q": "...", "source": "en", "target": "de"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("name", "value", "checked"),
    [
        *(("alternatives", value, number) for value, number in (("3", 3), (3, 3), ("", 0), (None, 0), ("0", 0))),
        *(("alignment", value, True) for value in (True, "true", "1")),
        *(("alignment", value, False) for value in (False, "false", "", None)),
        ("q", ["a", ""], ["a", ""]),
        ("api_key", 5, "5"),
    ],
)
def test_parameters(name: str, value: object, checked: object) -> None:
    assert getattr(TranslateParameters.of({**ASK, name: value}), name) == checked


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("alternatives", ["1_0", "-1", -1, "1.5", 2.0, True, [], {}, "9" * 5_000, "²"], "is not a number"),
        ("alignment", [1, "yes", [], "x"], "is not true or false"),
        ("stream", [1, "token", {}], "is not true or false"),
        ("q", [1, [1], {"a": 1}, [1] * 100_000], "is not a string or a list"),
        ("source", [1, ["en"], {}], "source parameter is not a string"),
        ("q", [None, ""], "missing q"),
    ],
)
def test_what_is_no_parameter_is_said(name: str, values: list[object], problem: str) -> None:
    for value in values:
        begin = time.process_time()
        with pytest.raises(RequestError, match=problem):
            TranslateParameters.of({**ASK, name: value})
        # of thousands of wrong texts the first is refused
        assert time.process_time() - begin < 0.05


def test_a_form_has_as_many_parameters_as_a_request_may_need(serve: Serve) -> None:
    client = serve(batch_limit=3)
    for excess in (0, 1):
        values = ASK | {f"n{number}": "x" for number in range(SPARE_FIELDS + 3 - len(ASK) + excess)}
        parts = {name: (None, value) for name, value in values.items()}
        # those of the query string are counted where JSON has the parameters too
        for form in ({"params": values}, {"data": values}, {"files": parts}, {"json": ASK, "params": values}):
            assert client.post("/translate", **form).status_code == (400 if excess else 200)


def test_a_form_is_read_as_urllib_reads_it(serve: Serve) -> None:
    client, generator = serve(), random.Random(5)
    for _ in range(40):
        text = "...+" + "".join(generator.choices(["%", "4", "%c3%A4", "+", "%c3", "%e2%82%ac", "%0a", "="], k=9))
        answer = client.post("/translate", content=f"x&&q=a&source={text}&target=de&y", headers=FORM)
        assert answer.json()["error"] == f"{unquote_plus(text)} is not supported"
    # bytes that are not escaped are UTF-8 too
    answer = client.post("/translate", content="q=…&source=en&target=de".encode(), headers=FORM)
    assert answer.json() == {"translatedText": "…"}


def test_a_form_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        assert body._unescaped("%" * 300_000) == "%" * 300_000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("query", "content"),
    [
        ("&".join(f"n{number}" for number in range(15_500)), ""),
        ("", "&" * 3_000_000),
        ("", "%41a" * 750_000),
    ],
)
def test_parameters_take_a_time_in_proportion_to_their_number(serve: Serve, query: str, content: str) -> None:
    headers, statuses = [(name.lower().encode(), value.encode()) for name, value in FORM.items()], list[int]()

    async def receive() -> dict:
        return {"type": "http.request", "body": content.encode()}

    async def send(message: dict) -> None:
        statuses.append(message.get("status", 0))

    scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": query.encode(), "headers": headers}
    begin = time.process_time()
    asyncio.run(serve(batch_limit=-1).app(scope, receive, send))
    assert statuses == [400, 0]
    # the first took half a minute of the event loop
    assert time.process_time() - begin < 5


def test_a_legal_batch_passes_however_it_is_written(serve: Serve) -> None:
    client, json_type = serve(), {"Content-Type": "application/json"}
    content = json.dumps(ASK | {"q": (texts := ["\U0001f600" * 5_000] * 50)})
    assert len(content) > 3_000_000
    assert client.post("/translate", content=content, headers=json_type).json()["translatedText"] == texts
    # signs of JSON within texts are text
    for text in ('"[{,:}]' * 700, "\\" * 5_000, '\\"' * 2_500):
        texts = [f"{text}\N{EM DASH}"[-5_000:]] * 50
        assert client.post("/translate", json=ASK | {"q": texts}).json()["translatedText"] == texts


def test_json_is_measured_before_it_is_parsed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("parsed"))
    for piece in ("[],", "{},", '"",', '"a",', " ", '"\\\\",'):
        content = '{"q": [' + piece * (2_000_000 // len(piece)) + '""], "source": "en", "target": "de"}'
        answer = client.post("/translate", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.text) == (400, '{"error":"Invalid JSON format"}')


def test_a_glossary_and_a_content_type_are_short(serve: Serve) -> None:
    client = serve()
    assert "65536 characters" in client.post("/translate", data=ASK | {"glossary": "[" * (SPARE + 1)}).json()["error"]
    for kind in ("multipart/form-data", "application/json"):
        answer = client.post("/translate", content=b"{}", headers={"Content-Type": kind + ";" * MAX_KIND})
        assert answer.status_code == 400 and "content type" in answer.json()["error"]


def test_an_error_repeats_little_of_what_was_sent(serve: Serve) -> None:
    client, long = serve(), "x" * 100_000
    for name in ("source", "target", "format", "alternatives", "alignment", "stream"):
        for value in (long, [long]):
            answer = client.post("/translate", json=ASK | {name: value})
            assert answer.status_code == 400 and len(answer.json()["error"]) <= 323, name
    answer = client.post(f"/{'x' * 1_900}", json={"q": "a"})
    assert answer.status_code == 404 and len(answer.text) < 640


def test_bodies_have_room_for_what_is_legal_alone() -> None:
    assert ServerSettings().max_texts == 12 * 5_000 * 50 + SPARE
    assert ServerSettings(batch_limit=0).max_texts == 12 * 5_000 + SPARE
    # without limits of one's own there is one all the same; a text of the largest size always comes in
    assert ServerSettings(batch_limit=-1).max_texts == ServerSettings(char_limit=-1).max_texts == 2**24 + SPARE
    assert ServerSettings(char_limit=10**7).max_texts == 12 * 10**7 + SPARE
    assert ServerSettings().max_document == 10 * 2**20 + SPARE
