"""Documents through the queue of all requests: in pieces, so that nobody waits behind a whole book."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from attent.data.sentences import SplitText, split_sentences
from attent.documents import Document, read_document
from attent.errors import DataError
from attent.markup.inline import AlignedText
from attent.markup.translate import join_aligned
from attent.serve.translation.engines import TranslatedSentence, TranslationWork
from attent.serve.translation.errors import RequestError, busy
from attent.serve.translation.service import AUTO, TranslationService

Value = TypeVar("Value")
# Documents at the same time, each of which takes some memory.
MAX_DOCUMENTS = 8
# Characters that a language is detected by.
DETECTION_SAMPLE = 20_000
# Sentences of a document: twice as many as the largest has that is ordinary text.
MAX_SENTENCES = 250_000
# Seconds after which a piece that found the queue full tries again.
RETRY_INTERVAL = 0.2
SPACE = re.compile(r"\s+")
# A sentence and what to do with it.
Task = tuple[TranslationWork, str]


class PreparedLine(NamedTuple):
    """A line of a document before its translation: its sentences, and what to do with them."""

    split: SplitText
    work: TranslationWork


class DocumentTranslator:
    """Translates documents.

    All documents together have as many pieces in the queue as there are threads, each of at most a batch: whoever comes waits for the
    batches that are under way and no others.

    Args:
        service: translates.
    """

    def __init__(self, service: TranslationService) -> None:
        self._service, settings = service, service.settings
        self._slots = asyncio.Semaphore(settings.threads)
        self._piece = max(1, min(settings.batch, settings.queue_limit // 2))
        self._running = 0

    async def run(self, function: Callable[..., Value], *arguments: object) -> Value:
        """Run a function in the thread of documents."""
        return await asyncio.get_running_loop().run_in_executor(self._service.documents, function, *arguments)

    async def translate(
        self, content: bytes, ending: str, source: str, target: str, charge: Callable[[int], None] = lambda size: None
    ) -> bytes:
        """Translate a document.

        Args:
            content: of the file.
            ending: of its name, such as .docx.
            source: the code of its language, or "auto".
            target: the code of the language to translate to.
            charge: is called with the number of its characters, before they are translated.

        Raises:
            RequestError: a language is not served, a sentence is refused, or the server has too much to do.
            DataError: the document cannot be read.
        """
        self._service.check_languages(source, target)
        if self._running >= MAX_DOCUMENTS:
            raise busy(self._service.settings.timeout / 2)
        self._running += 1
        try:
            document = await self.run(read_document, content, ending)
            texts = [line.text for line in document.lines]
            if source == AUTO:
                source = (await self.run(self._service.detect_source, "\n".join(texts)[:DETECTION_SAMPLE], target)).language
            if source == target:
                return content
            charge(sum(map(len, texts)))
            lines = await self.run(self._prepare, document, source, target)
            translated = await self._translate(await self.run(self._pieces, lines))
            return await self.run(_render, document, lines, translated)
        finally:
            self._running -= 1

    def _prepare(self, document: Document, source: str, target: str) -> list[PreparedLine]:
        """Cut lines into sentences; words are aligned where something is to be put around them.

        Raises:
            DataError: there are too many.
        """
        works = {has_markup: self._service.find_work(source, target, has_markup=has_markup) for has_markup in (False, True)}
        lines, count = list[PreparedLine](), 0
        for line in document.lines:
            work = works[bool(line.elements)]
            lines.append(PreparedLine(_fit(split_sentences(line.text, source), work), work))
            count += len(lines[-1].split.sentences)
            if count > MAX_SENTENCES:
                raise DataError(f"a document may have at most {MAX_SENTENCES:,} sentences: cut it into several")
        return lines

    def _pieces(self, lines: Sequence[PreparedLine]) -> list[list[Task]]:
        """Return sentences of equal work, each once, in pieces of about one length, which are translated faster."""
        pieces: list[list[Task]] = []
        for work in dict.fromkeys(line.work for line in lines):
            texts = dict.fromkeys(text for line in lines if line.work is work for text in line.split.sentences)
            tasks = [(work, text) for text in sorted(texts, key=len)]
            pieces += (tasks[begin : begin + self._piece] for begin in range(0, len(tasks), self._piece))
        return pieces

    async def _translate(self, pieces: Sequence[list[Task]]) -> dict[Task, TranslatedSentence]:
        """Return the translation of each sentence."""
        results: dict[Task, TranslatedSentence] = {}
        remaining = iter(pieces)

        async def send_pieces() -> None:
            for piece in remaining:
                # documents take their turns here
                async with self._slots:
                    work, texts = piece[0][0], [text for _, text in piece]
                    results.update(zip(piece, await self._submit(texts, work), strict=True))

        senders = [asyncio.ensure_future(send_pieces()) for _ in range(self._service.settings.threads)]
        try:
            await asyncio.gather(*senders)
        finally:
            for sender in senders:
                sender.cancel()
        return results

    async def _submit(self, texts: Sequence[str], work: TranslationWork) -> Sequence[TranslatedSentence]:
        """Translate a piece; wait while the queue is full of others, as long as a request may take."""
        deadline = time.monotonic() + self._service.settings.timeout
        while True:
            try:
                return await self._service.batcher.submit(texts, work)
            except RequestError as error:
                if error.status != 429 or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_INTERVAL)


def _render(document: Document, lines: Sequence[PreparedLine], translated: dict[Task, TranslatedSentence]) -> bytes:
    def aligned(task: Task) -> AlignedText:
        sentence = translated[task]
        return AlignedText(sentence.texts[0], sentence.spans[0] if sentence.spans else ())

    # a line at a time: links of all words twice would take as much memory as all the rest
    return document.render(join_aligned(split, [aligned((work, text)) for text in split.sentences]) for split, work in lines)


def _fit(split: SplitText, work: TranslationWork) -> SplitText:
    """Cut sentences that are too long for a run between words.

    Raises:
        RequestError: the run refuses a single word.
    """
    between, sentences = [split.between[0]], list[str]()
    for sentence, after in zip(split.sentences, split.between[1:], strict=True):
        waiting = [(sentence, after)]
        while waiting:
            text, after_text = waiting.pop()
            try:
                work.check(text)
            except RequestError:
                gaps = [match.span() for match in SPACE.finditer(text)]
                if not gaps:
                    raise
                begin, end = min(gaps, key=lambda gap: abs(gap[0] - len(text) // 2))
                waiting += [(text[end:], after_text), (text[:begin], text[begin:end])]
                continue
            sentences.append(text)
            between.append(after_text)
    return SplitText(tuple(between), tuple(sentences))
