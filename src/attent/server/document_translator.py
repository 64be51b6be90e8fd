"""Documents through the queue of all requests: in pieces, so that nobody waits behind a whole book."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from attent.documents.inline import AlignedText
from attent.documents.pipeline import cut_sentence, join_aligned
from attent.errors import DataError
from attent.server.document_processes import DocumentText, Row
from attent.server.engines import TranslationWork
from attent.server.errors import RequestError, busy
from attent.server.service import AUTO, TranslationService
from attent.text.sentences import SplitText
from attent.text.units import Span

# Documents at the same time, each of which takes some memory.
MAX_DOCUMENTS = 8
# Sentences of a document: twice as many as the largest has that is ordinary text.
MAX_SENTENCES = 250_000
# Characters of a piece in the queue, which keeps others waiting for as long as it is translated.
MAX_PIECE = 4_000
# Sentences that are looked at before another document's are, or a client's leaving is noticed.
SENTENCES = 256
# Seconds after which a piece that found the queue full tries again.
RETRY_INTERVAL = 0.2
# A sentence and what to do with it.
Task = tuple[TranslationWork, str]


class PreparedSentence(NamedTuple):
    """A sentence of a document before its translation.

    Args:
        work: what to do with it.
        split: the pieces of it that the run reads, mostly one.
    """

    work: TranslationWork
    split: SplitText


class TranslatedPiece(NamedTuple):
    """A translation, and links in 16 bytes each.

    Args:
        text: the translation.
        links: the begins and ends of spans, four numbers for each link.
    """

    text: str
    links: array[int]

    @classmethod
    def of(cls, text: str, links: Sequence[tuple[Span, Span]]) -> TranslatedPiece:
        """Return a translation with these links."""
        return cls(text, array("I", (number for source, target in links for number in (*source, *target))))

    @property
    def aligned(self) -> AlignedText:
        """The translation with its links as spans."""
        ends = iter(self.links)
        return AlignedText(
            self.text, [(Span(a, b), Span(c, d)) for a, b, c, d in zip(ends, ends, ends, ends, strict=True)]
        )


class DocumentTranslator:
    """Translates documents.

    All documents together have as many pieces in the queue as there are threads, each of at most a batch: whoever comes
    waits for the batches that are under way and no others.

    Args:
        service: translates.
    """

    def __init__(self, service: TranslationService) -> None:
        self._service, settings = service, service.settings
        self._slots = asyncio.Semaphore(settings.workers)
        self._piece = max(1, min(settings.batch, settings.queue_limit // 2))
        self._running = 0

    def check_room(self) -> None:
        """Check that another document may be translated.

        Raises:
            RequestError: there are too many.
        """
        if self._running >= MAX_DOCUMENTS:
            raise busy(self._service.settings.timeout / 2)

    async def translate(
        self, file: BinaryIO, ending: str, source: str, target: str, charge: Callable[[int], None] = lambda size: None
    ) -> bytes:
        """Translate a document.

        Args:
            file: the document, of which nothing is read before its turn.
            ending: of its name, such as .docx.
            source: the code of its language, or "auto".
            target: the code of the language to translate to.
            charge: is called with the number of characters of its sentences, before they are translated.

        Raises:
            RequestError: a language is not served, a sentence is refused, or the server has too much to do.
            DataError: the document cannot be read, or takes too much time or memory.
        """
        self._service.check_languages(source, target)
        self.check_room()

        def find_language(text: str) -> str | None:
            language = self._service.detect_source(text, target).language if source == AUTO else source
            return None if language == target else language

        documents = self._service.documents
        self._running += 1
        try:
            text = await documents.read(file, ending, find_language, MAX_SENTENCES)
            if text is None or not text.sentences:
                return await documents.run(_content, file)
            charge(sum(len(sentence.text) for sentence in text.sentences))
            sentences = await self._prepare(text, target)
            translated = await self._translate(await documents.run(self._pieces, sentences))
            return await documents.render(file, ending, text.language, _rows(sentences, translated))
        finally:
            self._running -= 1

    async def _prepare(self, text: DocumentText, target: str) -> list[PreparedSentence]:
        """Cut sentences that are too long for a run; words are aligned where something is to be put around them.

        Raises:
            DataError: there are too many.
        """
        works = self._service.find_works(text.language, target)

        def prepare(begin: int) -> list[PreparedSentence]:
            batch = text.sentences[begin : begin + SENTENCES]
            return [
                PreparedSentence(work := works[has_tags], cut_sentence(sentence, work.read))
                for sentence, has_tags in batch
            ]

        sentences, count = list[PreparedSentence](), 0
        for begin in range(0, len(text.sentences), SENTENCES):
            batch = await self._service.documents.run(prepare, begin)
            sentences += batch
            count += sum(len(sentence.split.sentences) for sentence in batch)
            if count > MAX_SENTENCES:
                raise DataError(f"a document may have at most {MAX_SENTENCES:,} sentences: cut it into several")
        return sentences

    def _pieces(self, sentences: Sequence[PreparedSentence]) -> list[list[Task]]:
        """Return sentences of equal work, each once, in pieces of about one length, which are translated faster."""
        pieces: list[list[Task]] = []
        for work in dict.fromkeys(sentence.work for sentence in sentences):
            texts = dict.fromkeys(
                text for sentence in sentences if sentence.work is work for text in sentence.split.sentences
            )
            size = 0
            for number, text in enumerate(sorted(texts, key=len)):
                size += len(text)
                if not number or len(pieces[-1]) == self._piece or size > MAX_PIECE:
                    pieces.append([])
                    size = len(text)
                pieces[-1].append((work, text))
        return pieces

    async def _translate(self, pieces: Sequence[list[Task]]) -> dict[Task, TranslatedPiece]:
        """Return the translation of each sentence."""
        results: dict[Task, TranslatedPiece] = {}
        remaining = iter(pieces)

        async def send_pieces() -> None:
            for piece in remaining:
                # documents take their turns here
                async with self._slots:
                    work, texts = piece[0][0], [text for _, text in piece]
                    results.update(zip(piece, await self._submit(texts, work), strict=True))

        senders = [asyncio.ensure_future(send_pieces()) for _ in range(self._service.settings.workers)]
        try:
            await asyncio.gather(*senders)
        finally:
            for sender in senders:
                sender.cancel()
        return results

    async def _submit(self, texts: Sequence[str], work: TranslationWork) -> list[TranslatedPiece]:
        """Translate a piece; wait while the queue is full of others, as long as a request may take."""
        deadline = time.monotonic() + self._service.settings.timeout
        while True:
            self._service.documents.check_open()
            try:
                translated = await self._service.batcher.submit(texts, work)
                return [
                    TranslatedPiece.of(sentence.texts[0], sentence.spans[0] if sentence.spans else ())
                    for sentence in translated
                ]
            except RequestError as error:
                if error.status != 429 or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_INTERVAL)


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _rows(sentences: Sequence[PreparedSentence], translated: dict[Task, TranslatedPiece]) -> Iterator[Row]:
    """Yield what a process puts into the document, for each sentence."""
    for work, split in sentences:
        pieces = [translated[work, text] for text in split.sentences]
        if len(pieces) > 1:
            pieces = [TranslatedPiece.of(*join_aligned(split, [piece.aligned for piece in pieces]))]
        yield pieces[0].text, pieces[0].links.tolist()
