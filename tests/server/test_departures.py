"""Clients that leave take their sentences out of the queue, and documents take a bounded share of it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from attent.server import documents
from attent.server.app import Metrics, application
from attent.server.batcher import Batcher
from attent.server.catalog import RunCatalog
from attent.server.connections import BoundedProtocol
from attent.server.documents import DocumentTranslator
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


def request_of(path: str, content_type: str, body: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def json_request(**values: object) -> bytes:
    body = json.dumps({"q": TEXT, "source": "fr", "target": "de", **values})
    return request_of("/translate", "application/json", body)


def document_request() -> bytes:
    parts = {'name="source"': "fr", 'name="target"': "de", 'name="file"; filename="a.txt"': TEXT}
    form = "".join(f"--x\r\nContent-Disposition: form-data; {name}\r\n\r\n{text}\r\n" for name, text in parts.items())
    return request_of("/translate_file", "multipart/form-data; boundary=x", f"{form}--x--\r\n")


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
async def test_a_client_that_leaves_takes_its_sentences_out(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch, queue: Batcher, blocked: Any, kind: str
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 1)
    request, count = REQUESTS[kind]
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


async def test_a_client_that_leaves_amid_events_takes_the_rest_out(
    catalog: RunCatalog, translators: dict, monkeypatch: pytest.MonkeyPatch, queue: Batcher, blocked: Any
) -> None:
    search = translators["fr:de"].search

    def search_first(texts: Sequence[Any], *rest: object) -> object:
        return search(texts if texts[0].text == "A dog runs." else blocked(texts), *rest)

    monkeypatch.setattr(translators["fr:de"], "search", search_first)
    async with served(catalog, queue) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(json_request(stream=True))
        assert b'"sentence": 0' in await reader.readuntil(b"}\n\n")
        await asyncio.to_thread(blocked.is_running.wait, SECONDS)
        assert queue.waiting == 1
        writer.close()
        await until_waiting(queue, 0)


async def test_documents_take_a_bounded_share_of_the_queue_and_leave_it_with_their_client(catalog: RunCatalog) -> None:
    settings = ServerSettings(batch=4, window=0.0)
    batcher, waiting = Batcher(settings), list[int]()
    service = TranslationService(settings, catalog, batcher)
    translator = DocumentTranslator(service)
    texts = "\n".join(f"dog {'ab' * number}" for number in range(40)).encode()
    tasks = [
        asyncio.create_task(translator.translate(io.BytesIO(texts + end), ".txt", "en", "de", int))
        for end in (b"a", b"b")
    ]
    while not any(task.done() for task in tasks):
        waiting.append(batcher.waiting + batcher.running)
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (max(waiting), batcher.waiting, translator._running) == (4, 0, 0)
    service.close()
    batcher.close()
