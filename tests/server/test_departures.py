"""Clients that close their connection while they are served, over a socket: what they asked for leaves the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from attent.server import documents
from attent.server.app import Metrics, application
from attent.server.batcher import Batcher
from attent.server.connections import BoundedProtocol
from attent.server.engines import RunCatalog
from attent.server.limits import AddressLimits
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings

TEXT = "A dog runs. Two men sit. A cat sees it."
SECONDS = 30
SETTINGS = ServerSettings(window=0.0, batch=1)


@pytest.fixture
def queue() -> Iterator[Batcher]:
    batcher = Batcher(SETTINGS)
    yield batcher
    batcher.close()


def json_request(**values: object) -> bytes:
    body = json.dumps({"q": TEXT, "source": "fr", "target": "de", **values}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def document_request() -> bytes:
    fields = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("source", "fr"), ("target", "de"))
    )
    body = f'{fields}--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    body = f"{body}{TEXT}\r\n--x--\r\n".encode()
    head = (
        "POST /translate_file HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def served(catalog: RunCatalog, queue: Batcher) -> AsyncIterator[int]:
    """The application on a port."""
    service = TranslationService(SETTINGS, catalog, queue)
    app = application(service, Metrics(lambda: 0, lambda: 0))
    config, state = uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"), ServerState()
    config.load()

    def protocol() -> BoundedProtocol:
        return BoundedProtocol(config=config, server_state=state, app_state={}, limits=AddressLimits(9, 9))

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()
    await asyncio.gather(*state.tasks)
    service.close()


async def until_waiting(batcher: Batcher, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while batcher.waiting != count:
            await asyncio.sleep(0.01)


REQUESTS = {"text": (json_request(), 3), "events": (json_request(stream=True), 3), "document": (document_request(), 1)}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_client_that_leaves_takes_its_sentences_out(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch, queue: Batcher, blocked: Any, kind: str
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 1)
    request, count = REQUESTS[kind]

    async def leave() -> None:
        first = asyncio.ensure_future(queue.submit(["x"], blocked))
        await asyncio.to_thread(blocked.is_running.wait, SECONDS)
        async with served(catalog, queue) as port:
            # the second finds nothing left of the first, not even a document under way
            for _ in range(2):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                await until_waiting(queue, count)
                writer.close()
                await until_waiting(queue, 0)
            blocked.may_end.set()
            assert await first == ["x"]

    asyncio.run(leave())


def test_a_client_that_leaves_amid_events_takes_the_rest_out(
    catalog: RunCatalog, translators: dict, monkeypatch: pytest.MonkeyPatch, queue: Batcher, blocked: Any
) -> None:
    search = translators["fr:de"].search
    monkeypatch.setattr(
        translators["fr:de"],
        "search",
        lambda texts, *rest: search(texts if texts[0].text == "A dog runs." else blocked(texts), *rest),
    )

    async def leave() -> None:
        async with served(catalog, queue) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(json_request(stream=True))
            assert b'"sentence": 0' in await reader.readuntil(b"}\n\n")
            await asyncio.to_thread(blocked.is_running.wait, SECONDS)
            assert queue.waiting == 1
            writer.close()
            await until_waiting(queue, 0)

    asyncio.run(leave())
