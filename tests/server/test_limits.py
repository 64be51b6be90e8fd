"""API keys and limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from attent.errors import ArgumentError
from attent.server import limits
from attent.server.limits import read_keys

Serve = Callable[..., TestClient]
ASK = {"q": "a dog", "source": "en", "target": "de"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfree\nsmall 2\nblocked 0\n\n")
    return file


def test_a_key_is_not_needed_where_none_is_asked_for(serve: Serve, keys: Path) -> None:
    assert serve().post("/translate", json=ASK | {"api_key": "any"}).status_code == 200
    assert serve(api_keys_file=keys).post("/translate", json=ASK).status_code == 200
    assert serve(api_keys_file=keys).post("/translate", json=ASK | {"api_key": "any"}).status_code == 403


def test_a_request_costs_one_for_each_text_and_one_without_texts(serve: Serve) -> None:
    client = serve(req_limit=5)
    assert client.post("/translate", json=ASK | {"q": ["a", "b", "c"]}).status_code == 200
    refused = client.post("/translate", json=ASK | {"q": ["a", "b", "c"]})
    assert (refused.status_code, refused.json()) == (429, {"error": "Slowdown: 5 per 1 minute"})
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    answers = [client.post("/translate", json=ASK | {"q": []}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() == {"translatedText": []}


@pytest.mark.parametrize("path", ["/translate", "/detect", "/translate_file"])
async def test_nothing_is_read_after_a_wrong_key(serve: Serve, keys: Path, path: str) -> None:
    client, statuses = serve(api_keys_file=keys, require_api_key=True), list[int]()

    async def receive() -> dict:
        raise AssertionError("read")

    async def send(message: dict) -> None:
        statuses.append(message.get("status", 0))

    async def ask(query: bytes, *headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": headers}
        await client.app(scope, receive, send)

    await ask(b"api_key=fre")
    await ask(b"", (b"authorization", b"Bearer fre"))
    assert statuses == [403, 0] * 2
    for right in ({"params": {"api_key": "free"}}, {"headers": {"authorization": "Bearer free"}}):
        assert client.post("/translate", **right, data=ASK).status_code == 200


def test_the_texts_of_a_minute_are_forgotten(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client, now = serve(req_limit=2), time.monotonic()
    for seconds, expected in ((0, [200, 200, 429]), (30, [429]), (61, [200, 200, 429])):
        monkeypatch.setattr(limits.time, "monotonic", lambda then=now + seconds: then)
        assert [client.post("/translate", json=ASK | {"q": "..."}).status_code for _ in expected] == expected


def test_a_key_has_its_own_limit(serve: Serve, keys: Path) -> None:
    client = serve(api_keys_file=keys, req_limit=1)
    assert [client.post("/translate", json=ASK | {"api_key": "small"}).status_code for _ in range(3)] == [200, 200, 429]
    assert [client.post("/translate", json=ASK).status_code for _ in range(2)] == [200, 429]


def test_an_address_is_believed_of_a_trusted_proxy_alone(serve: Serve) -> None:
    def statuses(**settings: object) -> list[int]:
        client = serve(req_limit=1, **settings)
        forwarded = ["1.1.1.1", "2.2.2.2", "9.9.9.9, 1.1.1.1"]
        return [
            client.post("/translate", json=ASK, headers={"x-forwarded-for": address}).status_code
            for address in forwarded
        ]

    assert statuses() == [200, 429, 429]
    # what a client writes before its proxy's word is not believed
    assert statuses(trusted_proxy=("testclient",)) == [200, 200, 429]


def test_wrong_files_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for content, problem in (("a b", "line 1"), ("a 1 2", "line 1"), ("a\nb -1", "line 2")):
        file.write_text(content)
        with pytest.raises(ArgumentError, match=problem):
            read_keys(file)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_keys(tmp_path / "none")
