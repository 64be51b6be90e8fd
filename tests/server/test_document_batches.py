"""Documents in the queue: a bounded share of it, none of it once the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import io

from attent.server.batcher import Batcher
from attent.server.documents import DocumentTranslator
from attent.server.engines import RunCatalog
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
