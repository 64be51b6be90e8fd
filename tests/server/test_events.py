"""Answers that are sent as they are made: events in order, whose pieces are the whole answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from starlette.testclient import TestClient

from attent.search.search import SourceText
from attent.server.batcher import Batcher
from attent.server.catalog import RunCatalog
from attent.server.errors import RequestError
from attent.server.service import TextPiece, TranslationService
from attent.server.settings import ServerSettings

Serve = Callable[..., TestClient]
TEXT = "  A dog runs.  Two men sit.\n\n\t!!! \nIt is. No? Yes! A cat sees it. "
ASK = {"source": "fr", "target": "de", "stream": True}


def events(answer: object) -> list[dict]:
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return [json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n")[:-1]]


@pytest.mark.parametrize("extra", [{"alignment": True, "alternatives": 2}, {"format": "html"}, {"source": "auto"}])
def test_pieces_are_the_whole_answer(serve: Serve, extra: dict) -> None:
    client, texts = serve(), [TEXT, "...", "a <b>dog</b> runs"]
    *pieces, done = events(client.post("/translate", json=ASK | {"q": texts} | extra))
    whole = client.post("/translate", json=ASK | {"q": texts, "stream": False} | extra).json()
    assert done == {"kind": "done", **whole}
    order = [(piece["text"], piece["sentence"]) for piece in pieces]
    assert order == sorted(order) and len(pieces) == (3 if "format" in extra else 8)
    for text, translation in enumerate(whole["translatedText"]):
        assert "".join(piece["piece"] for piece in pieces if piece["text"] == text) == translation


def test_an_error_before_the_first_event_has_its_status(serve: Serve) -> None:
    answer = serve(queue_limit=2).post("/translate", json=ASK | {"q": "A dog. Two men. A cat."})
    assert (answer.status_code, answer.json()["error"].partition(",")[0]) == (429, "The server is busy")
    assert serve().post("/translate", json=ASK | {"q": "a", "target": "zz"}).status_code == 400


def test_an_error_after_the_first_event_is_the_last(
    serve: Serve, translators: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = translators["fr:de"].search

    def fail_later(texts: Sequence[SourceText], *rest: object) -> object:
        if "Two men." in [source.text for source in texts]:
            raise RequestError(503, "The server is shutting down")
        return search(texts, *rest)

    monkeypatch.setattr(translators["fr:de"], "search", fail_later)
    text = "A dog. Two men. A cat. A bird."
    piece, error = events(serve().post("/translate", json=ASK | {"q": text}))
    assert (piece["kind"], piece["sentence"]) == ("piece", 0)
    assert error == {"kind": "error", "error": "The server is shutting down", "status": 503}


async def test_the_first_sentences_do_not_wait_for_the_last(catalog: RunCatalog) -> None:
    sizes: list[int] = []
    batcher = Batcher(ServerSettings(), lambda group, size, *numbers: sizes.append(size))
    stream = TranslationService(ServerSettings(), catalog, batcher).stream(["A b. " * 10], "fr", "de")
    assert [piece.sentence async for piece in stream if isinstance(piece, TextPiece)] == [*range(10)]
    batcher.close()
    assert sizes == [1, 9]
