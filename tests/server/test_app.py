"""What holds for every route.

A full queue refuses before anything is read, bodies and paths are bounded, nobody waits for long texts.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from attent.server.service import TranslationService
from attent.server.settings import SPARE, ServerSettings

Serve = Callable[..., TestClient]


def scope_of(path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}


@pytest.mark.parametrize("path", ["/translate", "/translate/"])
def test_a_full_queue_refuses_before_a_body_is_read(serve: Serve, blocked: Any, path: str) -> None:
    client, messages = serve(queue_limit=1, window=0.0, batch=1), list[dict]()

    async def receive() -> dict:
        raise AssertionError("read")

    async def send(message: dict) -> None:
        messages.append(message)

    async def ask() -> None:
        first = asyncio.ensure_future(client.batcher.submit(["x"], blocked))
        await asyncio.to_thread(blocked.is_running.wait, 30)
        second = asyncio.ensure_future(client.batcher.submit(["y"], blocked))
        await asyncio.sleep(0)
        await client.app(scope_of(path, (b"content-length", b"1000")), receive, send)
        blocked.may_end.set()
        assert await asyncio.gather(first, second) == [["x"], ["y"]]

    asyncio.run(ask())
    start, body = messages
    headers = dict(start["headers"])
    assert (start["status"], headers[b"access-control-allow-origin"]) == (429, b"*")
    assert int(headers[b"retry-after"]) >= 1
    assert "busy" in json.loads(body["body"])["error"]
    assert f'attent_requests_total{{endpoint="{path.rstrip("/")}",status="429"}} 1.0' in client.get("/metrics").text


BODIES = {
    "/translate": ServerSettings().max_texts,
    "/detect": 12 * 5_000 + SPARE,
    "/translate_file": ServerSettings().max_document,
    "/suggest": SPARE,
    "/health": SPARE,
    "/nowhere": SPARE,
}


class Client:
    """A client that sends a body, piece by piece, through the application's own interface, and records answers."""

    def __init__(self, app: Callable, path: str, *headers: tuple[bytes, bytes], address: str = "a") -> None:
        self.pieces, self.is_waiting = asyncio.Queue[bytes | None](), False
        self.status, self.answer, self.taken = 0, b"", 0
        scope = scope_of(path, *headers) | {"client": (address, 1)}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict:
        self.is_waiting = True
        piece = await self.pieces.get()
        self.is_waiting = False
        if piece is None:
            return {"type": "http.disconnect"}
        self.taken += len(piece)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def _send(self, message: dict) -> None:
        self.status = message.get("status", self.status)
        self.answer += message.get("body", b"")

    async def send(self, size: int) -> int:
        """Send so many bytes, and return the status that was answered; 0 if more is read."""
        self.pieces.put_nowait(b"x" * size)
        # forms go on to the disk in a thread
        while not (self.pieces.empty() and (self.status or self.is_waiting)):
            await asyncio.sleep(0.001)
        return self.status

    async def leave(self) -> None:
        self.pieces.put_nowait(None)
        await self.task


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_is_as_long_as_its_path_allows(serve: Serve, path: str) -> None:
    app, too_large = serve().app, BODIES[path] + 1
    client = Client(app, path, (b"content-length", str(too_large).encode()))
    await client.task
    assert (client.status, client.taken) == (413, 0)
    assert f"at most {too_large - 1:,} bytes" in client.answer.decode()
    if path in ("/suggest", "/health", "/nowhere"):
        return
    is_form = path == "/translate_file"
    grown = Client(app, path, (b"content-type", b"multipart/form-data; boundary=x" if is_form else b"a/b"))
    if is_form:
        begin = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        grown.pieces.put_nowait(begin)
        too_large -= len(begin)
    assert await grown.send(too_large - 1) == 0
    assert await grown.send(1) == 413


async def test_bodies_under_way_have_a_sum(serve: Serve) -> None:
    maximum = ServerSettings().max_texts

    limits = {"body_limit": 3 * maximum, "address_body_limit": maximum + maximum // 2}
    app, clients = serve(disable_files_translation=True, **limits).app, list[Client]()

    async def send(size: int, address: str = "a") -> int:
        clients.append(Client(app, "/translate", address=address))
        return await clients[-1].send(size)

    assert [await send(maximum), await send(maximum)] == [0, 429]
    assert b"busy" in clients[1].answer
    # short ones come in, and so do those of another address
    assert await send(SPARE) == 0
    assert [await send(maximum - SPARE, address) for address in "bcd"] == [0, 0, 429]
    # what has gone makes room
    await clients[0].leave()
    assert await send(maximum - SPARE) == 0
    for client in clients:
        await client.leave()


def test_a_path_is_short(serve: Serve) -> None:
    client = serve()
    assert client.get("/" + "a" * 1_999).status_code == 404
    assert client.get("/" + "a" * 2_000).status_code == 414


@pytest.mark.parametrize("options", [{"format": "html"}, {"stream": True}])
def test_long_texts_are_prepared_beside_the_event_loop(
    serve: Serve, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, threads, prepare = serve(), list[str](), TranslationService._prepare

    def watched(*arguments: object) -> object:
        threads.append(threading.current_thread().name)
        return prepare(*arguments)

    monkeypatch.setattr(TranslationService, "_prepare", watched)
    for texts in (["<!-- -->..." * 400] * 50, ["A dog."]):
        values = {"q": texts, "source": "en", "target": "de", **options}
        assert client.post("/translate", json=values).status_code == 200
    assert threads[0].startswith("attent-texts") and not threads[1].startswith("attent-texts")
