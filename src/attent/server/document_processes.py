"""Worker processes that read and render documents, so that a malicious document cannot harm the server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, NamedTuple, TypeVar

from attent.documents.pipeline import DocumentSentence
from attent.errors import AttentError, DataError, printable
from attent.server.document_worker import (
    BATCH,
    CHUNK,
    DATA,
    END,
    ERROR,
    FAULT,
    MARKED,
    PLAIN,
    SAMPLE,
    read_frame,
    write_frame,
)
from attent.server.errors import RequestError, stopped

Value = TypeVar("Value")
# The translation of a sentence, and the links between the two, four numbers per link.
Row = tuple[str, list[int]]
COMMAND = (sys.executable, "-P", "-m", "attent.server.document_worker")
# Seconds of wall time that a process may spend on a document.
DEADLINE = 300.0
# Maximum bytes of its answer, and characters of its error message.
MAX_ANSWER, MAX_ERROR = 64 * 2**20, 300
# Environment variables that it inherits from the server, besides Python's; any other may hold a secret.
VARIABLES = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
UNREADABLE = "the document cannot be read"


class DocumentText(NamedTuple):
    """The text of a document.

    Args:
        language: the language's code.
        sentences: the sentences, in order.
    """

    language: str
    sentences: list[DocumentSentence]


class Exchange:
    """A conversation with a document's worker process, which any thread may end.

    The answers are validated, since the process parses untrusted bytes.
    """

    def __init__(self) -> None:
        self._lock, self._is_over = threading.Lock(), False
        self._process: subprocess.Popen[bytes] | None = None
        self._size = MAX_ANSWER

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Attach a process and wait until it has started.

        Raises:
            RequestError: it does not start.
        """
        with self._lock:
            self._process = process
            if self._is_over:
                process.kill()
        try:
            self._frame()
        except EOFError:
            raise _unavailable() from None

    def end(self) -> None:
        """Kill the process, or have it killed as soon as it is attached."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kill the process and wait for it to exit."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _end(process)

    def send(self, frames: Iterable[tuple[bytes, bytes]]) -> None:
        """Send frames while the process is alive; if it is not, reading the answer raises an error."""
        assert self._process is not None and self._process.stdin is not None
        for kind, payload in frames:
            try:
                write_frame(self._process.stdin, kind, payload)
                self._process.stdin.flush()
            except OSError:
                return

    def open(self, file: BinaryIO, ending: str) -> tuple[str, Iterator[bytes]]:
        """Send a document; return the beginning of its text and an iterator over the frames of the answer.

        Raises:
            DataError: the document cannot be read, or takes too much time or memory; also raised by the iterator.
        """
        file.seek(0)
        contents = ((DATA, chunk) for chunk in iter(partial(file.read, CHUNK), b""))
        self.send(chain([(DATA, ending.encode())], contents, [(END, b"")]))
        answer = self._answer()
        for beginning in answer:
            return _text(beginning)[:SAMPLE], answer
        raise DataError(UNREADABLE)

    def _answer(self) -> Iterator[bytes]:
        try:
            while (frame := self._frame())[0] == DATA:
                yield frame[1]
        except EOFError:
            raise DataError("the document takes too much time or memory to read") from None
        kind, payload = frame
        if kind != END:
            message = printable(payload[: 4 * MAX_ERROR].decode("utf-8", "replace").replace("\n", " "))[:MAX_ERROR]
            if kind == FAULT:
                logging.getLogger(__name__).error("a document could not be read: %s", message)
            raise DataError(message if kind == ERROR else UNREADABLE)

    def _frame(self) -> tuple[bytes, bytes]:
        assert self._process is not None and self._process.stdout is not None
        frame = read_frame(self._process.stdout, self._size)
        self._size -= len(frame[1])
        return frame


class DocumentProcesses:
    """Reads and renders documents one at a time, each in a separate process; the next process is started in advance."""

    def __init__(self) -> None:
        # waits for the processes and reads their answers
        self._thread = ThreadPoolExecutor(1, "attent-documents")
        self._lock, self._is_closed = threading.Lock(), False
        self._exchange: Exchange | None = None
        self._spare: subprocess.Popen[bytes] | None = None

    async def run(self, function: Callable[..., Value], *arguments: object) -> Value:
        """Run a function in the document thread; if its caller is canceled before it starts, it is dropped."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def read(
        self, file: BinaryIO, ending: str, find_language: Callable[[str], str | None], limit: int
    ) -> DocumentText | None:
        """Split a document into sentences.

        Args:
            file: the document.
            ending: the file name's extension, such as .docx.
            find_language: returns the language's code from the beginning of the text; None if the sentences are not
                needed.
            limit: the maximum number of sentences.

        Returns:
            The sentences; None if they are not needed.

        Raises:
            DataError: the document cannot be read, takes too much time or memory, or has too many sentences.
            RequestError: no process can be started.
        """

        def read(exchange: Exchange) -> DocumentText | None:
            beginning, answer = exchange.open(file, ending)
            language = find_language(beginning)
            if language is None:
                return None
            exchange.send([(DATA, f"read {language}".encode())])
            sentences = list[DocumentSentence]()
            for frame in answer:
                if len(sentences) + frame.count(b"\n") >= limit:
                    raise DataError(f"a document may have at most {limit:,} sentences: cut it into several")
                for sentence in _text(frame).split("\n"):
                    if len(sentence) < 2 or sentence[0] not in (PLAIN, MARKED):
                        raise DataError(UNREADABLE)
                    sentences.append(DocumentSentence(sentence[1:], sentence[0] == MARKED))
            return DocumentText(language, sentences)

        return await self._serve(read)

    async def render(self, file: BinaryIO, ending: str, language: str, rows: Iterable[Row]) -> bytes:
        """Return the document with its sentences replaced by their translations.

        Args:
            file: the document.
            ending: the file name's extension.
            language: the code of its language.
            rows: the translations of all sentences, in order.

        Raises:
            DataError: the document takes too much time or memory.
            RequestError: no process can be started.
        """

        def render(exchange: Exchange) -> bytes:
            _, answer = exchange.open(file, ending)
            remaining = iter(rows)
            batches = iter(lambda: [*islice(remaining, BATCH)], [])
            frames = ((DATA, json.dumps(batch).encode()) for batch in batches)
            exchange.send(chain([(DATA, f"render {language}".encode())], frames, [(END, b"")]))
            return b"".join(answer)

        return await self._serve(render)

    def stop(self) -> None:
        """Cancel pending documents; their clients are informed that the server is shutting down."""
        with self._lock:
            self._is_closed = True
            if self._exchange is not None:
                self._exchange.end()

    def check_open(self) -> None:
        """Check that documents are still being accepted.

        Raises:
            RequestError: the server is shutting down.
        """
        if self._is_closed:
            raise stopped()

    def close(self) -> None:
        """End all processes and the thread."""
        self.stop()
        self._thread.shutdown(cancel_futures=True)
        if self._spare is not None:
            _end(self._spare)
            self._spare = None

    async def _serve(self, function: Callable[[Exchange], Value]) -> Value:
        """Run a function with a document's process.

        The process ends when the function returns or its caller is canceled.
        """
        exchange = Exchange()
        try:
            return await self.run(self._run, exchange, function)
        finally:
            exchange.end()

    def _run(self, exchange: Exchange, function: Callable[[Exchange], Value]) -> Value:
        with self._lock:
            self.check_open()
            self._exchange = exchange
        timer = threading.Timer(DEADLINE, exchange.end)
        timer.start()
        try:
            exchange.begin(self._process())
            return function(exchange)
        except AttentError:
            # the process may have been ended by `stop`
            self.check_open()
            raise
        finally:
            timer.cancel()
            exchange.close()
            if not self._is_closed:
                with suppress(OSError):
                    self._spare = _start()

    def _process(self) -> subprocess.Popen[bytes]:
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.poll() is None:
                return spare
            _end(spare)
        try:
            return _start()
        except OSError as error:
            logging.getLogger(__name__).error("cannot start a process for documents: %s", error)
            raise _unavailable() from error


def _start() -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name in VARIABLES or name.startswith("PYTHON")}
    # the import path of this process, which may be a checkout, but not its working directory
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    # Windows has no nice value
    priority = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
    return subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, creationflags=priority
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and close its pipes, discarding unsent data."""
    with suppress(OSError), process:
        process.kill()


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise DataError(UNREADABLE) from None


def _unavailable() -> RequestError:
    return RequestError(503, "The server cannot read documents now")
