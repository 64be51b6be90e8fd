"""LibreTranslate's endpoints for documents: the client uploads a file and gets the address of its translation.

Documents are translated in small batches, so that other requests do not wait for a whole document.
"""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from attent.documents import FORMATS
from attent.documents.pipeline import cut_sentence, join_aligned
from attent.errors import DataError
from attent.search.search import SourceText
from attent.server.body import DocumentParameters, read_parameters
from attent.server.document_processes import DocumentText, Row
from attent.server.document_worker import aligned_text
from attent.server.engines import TranslatedSentence, TranslationWork
from attent.server.errors import RequestError, busy, invalid
from attent.server.limits import Gatekeeper
from attent.server.service import AUTO, TranslationService
from attent.server.translated_files import TranslatedFiles
from attent.text.sentences import SplitText

# Maximum documents at the same time; each takes some memory.
MAX_DOCUMENTS = 8
# Maximum sentences of a document: twice as many as the largest file of ordinary text has.
MAX_SENTENCES = 250_000
# Maximum characters in a batch of a document: other requests wait while it is translated.
MAX_PIECE = 4_000
# Sentences prepared before another document gets its turn or a disconnect is noticed.
SENTENCES = 256
# Seconds until a batch refused by a full queue is submitted again.
RETRY_INTERVAL = 0.2
# A host name or address with an optional port; no characters that could end a link or start another one.
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100}){0,8}")
SCHEMES = ("http", "https")
DOWNLOAD = "/download_file"
# Scripts in a document must not run in the server's origin.
HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "private, no-store"}


class PreparedSentence(NamedTuple):
    """A sentence of a document before its translation.

    Args:
        work: the computation to run on it.
        split: the pieces into which it is cut for the run, usually one.
    """

    work: TranslationWork
    split: SplitText


class TranslatedPiece(NamedTuple):
    """A translation with its links, 16 bytes each.

    Args:
        text: the translation.
        links: four numbers for each link: the begin and end of both spans.
    """

    text: str
    links: array[int]


# The distinct pieces of a document's sentences by work and text: as read by the run, and translated.
Sources = dict[TranslationWork, dict[str, SourceText]]
Translations = dict[TranslationWork, dict[str, TranslatedPiece]]


class DocumentTranslator:
    """Translates documents.

    All documents together have at most one batch per worker thread in the queue, so that another request waits only for
    the batches that are already running.

    Args:
        service: translates.
    """

    def __init__(self, service: TranslationService) -> None:
        self._service, settings = service, service.settings
        self._slots = asyncio.Semaphore(settings.workers)
        self._piece = max(1, min(settings.batch, settings.queue_limit // 2))
        self._running = 0

    def check_room(self) -> None:
        """Check that another document can be translated now.

        Raises:
            RequestError: there are too many.
        """
        if self._running >= MAX_DOCUMENTS:
            raise busy(self._service.settings.timeout / 2)

    async def translate(
        self, file: BinaryIO, ending: str, source: str, target: str, charge: Callable[[int], None]
    ) -> bytes:
        """Translate a document.

        Args:
            file: the document; it is read only when its turn comes.
            ending: the file name's extension, such as .docx.
            source: the code of its language, or "auto".
            target: the code of the language to translate to.
            charge: called with the number of characters of its sentences before they are translated.

        Raises:
            RequestError: a language is not served, a sentence is refused, or the server is too busy.
            DataError: the document cannot be read, or takes too much time or memory.
        """
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
            sentences, sources = await self._prepare(text, target)
            translations = await self._translate(sources)
            return await documents.render(file, ending, text.language, _rows(sentences, translations))
        finally:
            self._running -= 1

    async def _prepare(self, text: DocumentText, target: str) -> tuple[list[PreparedSentence], Sources]:
        """Cut sentences that are too long for the run; those in lines with tags will be aligned.

        Raises:
            DataError: there are too many sentences.
            RequestError: a sentence is refused.
        """
        works = await self._service.find_works(text.language, target)
        sources: Sources = {work: {} for work in works}

        def cut(sentence: str, work: TranslationWork) -> PreparedSentence:
            read_sources = sources[work]

            def read(piece: str) -> None:
                if piece not in read_sources:
                    read_sources[piece] = work.read(piece)

            return PreparedSentence(work, cut_sentence(sentence, read))

        def prepare(begin: int) -> list[PreparedSentence]:
            return [cut(sentence, works[has_tags]) for sentence, has_tags in text.sentences[begin : begin + SENTENCES]]

        sentences, count = list[PreparedSentence](), 0
        for begin in range(0, len(text.sentences), SENTENCES):
            batch = await self._service.documents.run(prepare, begin)
            sentences += batch
            count += sum(len(sentence.split.sentences) for sentence in batch)
            if count > MAX_SENTENCES:
                raise DataError(f"a document may have at most {MAX_SENTENCES:,} sentences: cut it into several")
        return sentences, sources

    async def _translate(self, sources: Sources) -> Translations:
        """Return the translation of each piece of a sentence."""
        results: Translations = {work: {} for work in sources}
        batches = iter(await self._service.documents.run(self._batches, sources))

        async def send_batches() -> None:
            for work, batch in batches:
                # documents take turns here
                async with self._slots:
                    translated = await self._submit(batch, work)
                for source, sentence in zip(batch, translated, strict=True):
                    spans = sentence.spans[0] if sentence.spans else ()
                    links = array("I", (number for link in spans for span in link for number in span))
                    results[work][source.original] = TranslatedPiece(sentence.texts[0], links)

        senders = [asyncio.ensure_future(send_batches()) for _ in range(self._service.settings.workers)]
        try:
            await asyncio.gather(*senders)
        finally:
            for sender in senders:
                sender.cancel()
        return results

    def _batches(self, sources: Sources) -> list[tuple[TranslationWork, list[SourceText]]]:
        """Return batches of pieces with equal work and similar lengths, which are translated faster."""
        batches: list[tuple[TranslationWork, list[SourceText]]] = []
        for work, read_sources in sources.items():
            size = 0
            for number, source in enumerate(sorted(read_sources.values(), key=len)):
                size += len(source)
                if not number or len(batches[-1][1]) == self._piece or size > MAX_PIECE:
                    batches.append((work, []))
                    size = len(source)
                batches[-1][1].append(source)
        return batches

    async def _submit(self, batch: Sequence[SourceText], work: TranslationWork) -> list[TranslatedSentence]:
        """Translate a batch; while the queue is full, retry for up to the timeout of a request."""
        deadline = time.monotonic() + self._service.settings.timeout
        while True:
            self._service.documents.check_open()
            try:
                return await self._service.batcher.submit(batch, work)
            except RequestError as error:
                if error.status != 429 or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_INTERVAL)


def public_address(request: Request, trusted_proxies: Collection[str]) -> str:
    """Return the server's public URL without a trailing slash, such as http://localhost:5000.

    The Host header is used if it is a valid host; X-Forwarded-Proto, -Host and -Prefix are used only if they come from
    a trusted proxy.
    """
    scheme, hosts, prefix = request.url.scheme, [request.headers.get("host", "")], ""
    if request.client is not None and request.client.host in trusted_proxies:
        forwarded = request.headers.get("x-forwarded-proto", "").lower()
        scheme = forwarded if forwarded in SCHEMES else scheme
        hosts.insert(0, request.headers.get("x-forwarded-host", ""))
        forwarded = request.headers.get("x-forwarded-prefix", "").rstrip("/")
        # a path with ".." could lead elsewhere
        prefix = forwarded if PREFIX.fullmatch(forwarded) and ".." not in forwarded else ""
    address, port = request.scope.get("server") or ("localhost", None)
    own = f"[{address}]" if ":" in address else address
    host = next((host for host in hosts if HOST.fullmatch(host)), own if port is None else f"{own}:{port}")
    return f"{scheme}://{host}{prefix}"


class DocumentEndpoints:
    """Endpoints that translate documents.

    Args:
        service: translates.
        files: the store of translated documents.
        gatekeeper: checks API keys and limits.
    """

    def __init__(self, service: TranslationService, files: TranslatedFiles, gatekeeper: Gatekeeper) -> None:
        self._service, self._files, self._gatekeeper = service, files, gatekeeper
        self._translator = DocumentTranslator(service)

    async def read(self, request: Request) -> None:
        """Read a request with a document; large documents are stored on disk to save memory."""
        if self._service.settings.disable_files_translation:
            raise RequestError(403, "Files translation are disabled on this server.")
        self._translator.check_room()
        try:
            await read_parameters(request, self._service.settings)
        except OSError as error:
            raise RequestError(507, f"The server cannot store the document: {error.strerror}") from error

    async def translate_file(self, request: Request) -> dict[str, Any]:
        """Answer POST /translate_file."""
        settings = self._service.settings
        values = await read_parameters(request, settings)
        upload = values.get("file")
        try:
            wish = DocumentParameters.of(values)
            upload, source, target = wish.file, wish.source, wish.target
            name, size = upload.filename or "", upload.size or 0
            if not name or not size:
                raise invalid("empty file")
            ending = PurePosixPath(name).suffix.lower()
            if ending not in FORMATS:
                raise invalid("file format not supported")
            if size > settings.max_file:
                raise RequestError(413, f"Invalid request: a document may have at most {settings.max_file:,} bytes")
            self._service.check_languages(source, target)
            self._gatekeeper.admit(request, values, 1)

            def charge(characters: int) -> None:
                # a document counts as texts of the maximum size, the first of which is already counted
                if settings.char_limit > 0 and (texts := -(-characters // settings.char_limit) - 1) > 0:
                    self._gatekeeper.admit(request, values, texts, is_admitted=True)

            # a large document stays on disk until its turn
            translation = await self._translator.translate(upload.file, ending, source, target, charge)
        finally:
            if isinstance(upload, UploadFile):
                await upload.close()
        key = self._files.save(translation, name)
        return {"translatedFileUrl": f"{public_address(request, settings.trusted_proxy)}{DOWNLOAD}/{quote(key)}"}

    async def download(self, request: Request) -> Response:
        """Answer GET /download_file/<name>."""
        file = self._files.find(request.path_params["name"])
        if file is None:
            raise RequestError(404, "Not Found")
        headers = HEADERS | {"Content-Disposition": f"attachment; filename*=utf-8''{quote(file.name)}"}
        return Response(file.content, headers=headers, media_type="application/octet-stream")


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _rows(sentences: Sequence[PreparedSentence], translations: Translations) -> Iterator[Row]:
    """Yield the translation and the links of each sentence, for the process that renders the document."""
    for work, split in sentences:
        pieces = [translations[work][text] for text in split.sentences]
        if len(pieces) == 1:
            yield pieces[0].text, pieces[0].links.tolist()
            continue
        text, links = join_aligned(split, [aligned_text(*piece) for piece in pieces])
        yield text, [number for link in links for span in link for number in span]
