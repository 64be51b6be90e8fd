"""Documents in the queue: a bounded share of it, none of it once the client has gone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from attent.data.sentences import SplitText
from attent.serve.translation.batcher import Batcher
from attent.serve.translation.document_translator import DocumentTranslator, _fit
from attent.serve.translation.engines import RunCatalog
from attent.serve.translation.errors import RequestError, invalid
from attent.serve.translation.service import TranslationService
from attent.serve.translation.settings import ServerSettings


def test_documents_take_a_bounded_share_of_the_queue_and_leave_it_with_their_client(catalog: RunCatalog) -> None:
    settings = ServerSettings(batch=4, window=0.0)
    batcher = Batcher(settings)
    texts = "\n".join(f"dog {'ab' * number}" for number in range(40)).encode()

    async def ask() -> list[int]:
        translator = DocumentTranslator(TranslationService(settings, catalog, batcher))
        documents = [asyncio.create_task(translator.translate(texts + end, ".txt", "en", "de")) for end in (b"a", b"b")]
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
        return waiting

    assert max(asyncio.run(ask())) == 4
    batcher.close()


class Short:
    """Work that reads eight characters."""

    def check(self, text: str) -> None:
        if len(text) > 8:
            raise invalid("too long")


def test_a_sentence_that_is_too_long_is_cut_between_words() -> None:
    split = SplitText((" ", "\n"), ("one two  three four",))
    fitted = _fit(split, Short())
    assert fitted.join(fitted.sentences) == " one two  three four\n"
    assert fitted.sentences == ("one two", "three", "four")
    with pytest.raises(RequestError, match="too long"):
        _fit(SplitText(("", ""), ("incomprehensible",)), Short())
