"""Documents in the queue: a bounded share of it, none of it once the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys

import pytest

from attent.server import document_processes, documents
from attent.server.batcher import Batcher
from attent.server.documents import DocumentTranslator
from attent.server.engines import RunCatalog
from attent.server.errors import RequestError
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings


def test_documents_take_a_bounded_share_of_the_queue_and_leave_it_with_their_client(catalog: RunCatalog) -> None:
    settings = ServerSettings(batch=4, window=0.0)
    batcher = Batcher(settings)
    texts = "\n".join(f"dog {'ab' * number}" for number in range(40)).encode()

    async def ask() -> list[int]:
        service = TranslationService(settings, catalog, batcher)
        translator = DocumentTranslator(service)
        documents = [
            asyncio.create_task(translator.translate(io.BytesIO(texts + end), ".txt", "en", "de", int))
            for end in (b"a", b"b")
        ]
        waiting = list[int]()
        while not any(document.done() for document in documents):
            waiting.append(batcher.waiting + batcher.running)
            await asyncio.sleep(0)
        for document in documents:
            document.cancel()
        for document in documents:
            with contextlib.suppress(asyncio.CancelledError):
                await document
        assert batcher.waiting == 0
        assert translator._running == 0
        service.close()
        return waiting

    assert max(asyncio.run(ask())) == 4
    batcher.close()


def test_documents_that_are_given_up_count_until_they_are_gone_and_no_longer(
    catalog: RunCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a process that starts, and does nothing
    program = "import sys, time\nsys.stdout.buffer.write(b'D' + bytes(4))\nsys.stdout.flush()\ntime.sleep(1000)"
    monkeypatch.setattr(document_processes, "COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 2)
    settings = ServerSettings()
    batcher = Batcher(settings)
    service = TranslationService(settings, catalog, batcher)

    async def ask() -> None:
        translator, exchanges = DocumentTranslator(service), set[object]()
        for _ in range(3):
            files = [io.BytesIO(b"a dog") for _ in range(2)]
            tasks = [asyncio.create_task(translator.translate(file, ".txt", "en", "de", int)) for file in files]
            async with asyncio.timeout(60):
                while (exchange := service.documents._exchange) in {None, *exchanges}:
                    await asyncio.sleep(0.01)
            exchanges.add(exchange)
            with pytest.raises(RequestError, match="busy"):
                await translator.translate(files[0], ".txt", "en", "de", int)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert translator._running == 0
            async with asyncio.timeout(60):
                while exchange._process is not None:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while not service.documents._thread._work_queue.empty():
                await asyncio.sleep(0.01)
        # none of those that waited came to its turn
        assert len(exchanges) == 3

    try:
        asyncio.run(ask())
    finally:
        service.close()
        batcher.close()
