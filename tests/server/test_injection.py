"""Requests of attackers: paths, headers, templates and markup in values, keys tried in turn, many requests."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from starlette.testclient import TestClient

from attent.server import limits

Serve = Callable[..., TestClient]
ASK = {"q": "a dog", "source": "en", "target": "de"}
VALUES = [
    "de\r\nSet-Cookie: a=b",
    "../../../../etc/passwd",
    "/etc/passwd\x00.json",
    "{{7*7}}${7*7}%(x)s{0}",
    "<script>alert(1)</script>",
]
PATHS = ["/%2e%2e/%2e%2e/etc/passwd", "/translate/..%2f..%2fetc", "/web/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "/%00"]


def test_a_value_comes_back_as_text_and_no_path_leads_to_a_file(serve: Serve) -> None:
    client = serve()
    for name, value in itertools.product(("source", "target", "format"), VALUES):
        answer = client.post("/translate", json=ASK | {name: value})
        assert answer.status_code == 400
        assert value in answer.json()["error"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code in (404, 405)
        assert "root:" not in answer.text


def test_half_a_character_is_no_text(serve: Serve) -> None:
    client, headers = serve(), {"Content-Type": "application/json"}
    for name in ASK:
        body = json.dumps(ASK | {name: "\ud83d"})
        for encoding in ("utf-8", "utf-16-le", "utf-32"):
            answer = client.post("/translate", content=body.encode(encoding), headers=headers)
            assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})
    # both halves are one
    answer = client.post("/translate", content=json.dumps(ASK | {"q": "\U0001f600"}), headers=headers)
    assert answer.json() == {"translatedText": "\U0001f600"}


def test_a_key_is_compared_with_all_keys_in_constant_time(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("first\nsecond\nthird\n")
    client, compared = serve(api_keys_file=file, require_api_key=True), list[int]()

    def compare_digest(first: bytes, second: bytes) -> bool:
        compared.append(len(first) + len(second))
        return hmac.compare_digest(first, second)

    monkeypatch.setattr(limits, "hmac", SimpleNamespace(compare_digest=compare_digest))
    for key, status in (("first", 200), ("third", 200), ("f", 403), ("first2", 403)):
        assert client.post("/translate", json=ASK | {"api_key": key}).status_code == status
    # each key with each, as digests of one length
    assert compared == [64] * 12


@pytest.mark.parametrize(
    ("settings", "answered"),
    [({"req_limit": 5}, 5), ({"queue_limit": 3, "window": 600.0}, 3)],
    ids=["texts a minute", "queue"],
)
async def test_a_limit_holds_for_requests_at_the_same_time(serve: Serve, settings: dict, answered: int) -> None:
    transport = httpx.ASGITransport(serve(**settings).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        answers = await asyncio.gather(*(client.post("/translate", json=ASK) for _ in range(23)))
    assert Counter(answer.status_code for answer in answers) == {200: answered, 429: 23 - answered}
