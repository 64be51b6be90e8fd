"""What holds for every route: a full queue refuses before anything is read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence

import pytest
from starlette.testclient import TestClient

Serve = Callable[..., TestClient]


class Blocked:
    """Work that waits until it may go on."""

    def __init__(self) -> None:
        self.is_running, self.may_end = threading.Event(), threading.Event()

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.is_running.set()
        assert self.may_end.wait(30)
        return list(texts)


@pytest.mark.parametrize("path", ["/translate", "/translate/", "/v1/translations"])
def test_a_full_queue_refuses_before_a_body_is_read(serve: Serve, path: str) -> None:
    client, blocked, messages = serve(queue_limit=1, window=0.0, batch=1), Blocked(), list[dict]()

    async def receive() -> dict:
        raise AssertionError("read")

    async def send(message: dict) -> None:
        messages.append(message)

    async def ask() -> None:
        first = asyncio.ensure_future(client.batcher.submit(["x"], blocked))
        await asyncio.to_thread(blocked.is_running.wait, 30)
        second = asyncio.ensure_future(client.batcher.submit(["y"], blocked))
        await asyncio.sleep(0)
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [(b"content-length", b"1000")]}
        await client.app(scope, receive, send)
        blocked.may_end.set()
        assert await asyncio.gather(first, second) == [["x"], ["y"]]

    try:
        asyncio.run(ask())
    finally:
        blocked.may_end.set()
    start, body = messages
    headers = dict(start["headers"])
    assert start["status"] == 429 and int(headers[b"retry-after"]) >= 1 and headers[b"access-control-allow-origin"] == b"*"
    error = json.loads(body["body"])["error"]
    assert "busy" in (error["message"] if path == "/v1/translations" else error)
    assert f'attent_requests_total{{endpoint="{path.rstrip("/")}",status="429"}} 1.0' in client.get("/metrics").text
