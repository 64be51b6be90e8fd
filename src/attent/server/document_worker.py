"""The process that reads and renders one document, outside the server, without PyTorch and within system limits.

`python -m attent.server.document_worker` splits one document into sentences, or inserts translations into it, and
exits, so that one process never handles documents of two clients. The server (`document_processes`) and the worker
exchange frames, each with a kind, a size, and a payload of that size:

1. The worker sends an empty frame once it has started.
2. The server sends the document's file name extension, the document in any number of frames, and an end frame.
3. The worker answers with the beginning of the text, from which the server detects the language. The server sends
   "read" or "render" and the language.
4. To "read", the worker answers with the sentences in any number of frames and an end frame. After "render", the server
   sends the translations and an end frame, and the worker answers with the document and an end frame.

Any answer may be replaced by an error, which ends the conversation.
"""

import json
import os
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import IO

from attent import system
from attent.documents import read_document
from attent.documents.inline import AlignedText
from attent.documents.pipeline import Document, render, sentences_of, split_lines
from attent.errors import AttentError
from attent.text.sentences import split_sentences
from attent.text.units import Span

HEADER = struct.Struct(">cI")
# Data, the end of a series of frames, an error to report to the client, and an internal error.
DATA, END, ERROR, FAULT = b"D", b"E", b"X", b"F"
# Characters used to detect the language.
SAMPLE = 20_000
# Sentences per frame, and bytes per frame of a document: few, since no other Python thread runs while one is processed.
BATCH, CHUNK = 256, 2**18
# First character of a sentence: its line is plain text, or has tags.
PLAIN, MARKED = "0", "1"
# Bytes of memory that the process may reserve, and seconds of processor time that it may use.
MEMORY, SECONDS = 512 * 2**20, 30
# Files that it may have open: Python imports some modules only when they are first needed.
FILES = 16
# Added to the nice value: requests have priority.
NICENESS = 5


def main() -> None:
    """Serve one document."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    limit_process()
    # loads libraries before a document arrives
    split_sentences("A.", "en")
    import_module("attent.documents.word_processors")
    write_frame(sink, DATA)
    sink.flush()
    try:
        ending = _receive(source).decode()
        document = read_document(b"".join(_frames(source)), ending)
        write_frame(sink, DATA, "\n".join(line.text for line in document.lines)[:SAMPLE].encode("utf-8", "replace"))
        sink.flush()
        work, language = _receive(source).decode().split(" ")
        for frame in _sentences(document, language) if work == "read" else _rendered(document, language, source):
            write_frame(sink, DATA, frame)
        write_frame(sink, END)
    except AttentError as error:
        write_frame(sink, ERROR, str(error).encode("utf-8", "replace"))
    # the server sees an end without an answer
    except (MemoryError, EOFError, BrokenPipeError):
        os._exit(1)
    except Exception as error:
        # its message may contain text of the document, which must not be logged
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
        write_frame(sink, FAULT, f"{type(error).__name__} at {line}".encode("utf-8", "replace"))
    sink.flush()


def limit_process() -> None:
    """Restrict this process: low priority, no writing of files, no child processes, exit with the server.

    Limits that the system does not support are skipped; the server ends a process that takes too long.
    """
    # a terminal and systemd send these signals to all processes of a server, which ends its workers itself
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if system.IS_LINUX:
        import ctypes

        # PR_SET_PDEATHSIG: exit even if the server is killed while this process computes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    try:
        import resource

        os.nice(NICENESS)
    except (ImportError, AttributeError):
        return
    bounds = {"AS": MEMORY, "CPU": SECONDS, "NOFILE": FILES, "FSIZE": 0, "NPROC": 0, "CORE": 0}
    for name, bound in bounds.items():
        # lower existing limits are kept
        with suppress(AttributeError, OSError, ValueError):
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            size = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.setrlimit(kind, (size, size))


def write_frame(stream: IO[bytes], kind: bytes, payload: bytes = b"") -> None:
    """Write a frame."""
    stream.write(HEADER.pack(kind, len(payload)))
    stream.write(payload)


def read_frame(stream: IO[bytes], limit: int) -> tuple[bytes, bytes]:
    """Return the kind of the next frame and its bytes.

    Raises:
        EOFError: the stream ends, or the frame is larger than the limit.
    """
    header = stream.read(HEADER.size)
    if len(header) == HEADER.size:
        kind, size = HEADER.unpack(header)
        if size <= limit and len(payload := stream.read(size)) == size:
            return kind, payload
    raise EOFError


def _receive(source: IO[bytes]) -> bytes:
    return read_frame(source, 2**32)[1]


def _frames(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the payloads of frames up to the end frame."""
    while (frame := read_frame(source, 2**32))[0] != END:
        yield frame[1]


def _sentences(document: Document[bytes], language: str) -> Iterator[bytes]:
    """Yield the sentences of a document, one per line, in frames."""
    sentences = sentences_of(document, split_lines(document, language))
    while batch := [*islice(sentences, BATCH)]:
        lines = "\n".join((MARKED if sentence.has_tags else PLAIN) + sentence.text for sentence in batch)
        yield lines.encode("utf-8", "replace")


def _rendered(document: Document[bytes], language: str, source: IO[bytes]) -> Iterator[bytes]:
    """Yield the document with its sentences translated; translations are read as they are needed."""
    translations = (aligned_text(*row) for frame in _frames(source) for row in json.loads(frame))
    content = memoryview(render(document, split_lines(document, language), translations))
    assert next(translations, None) is None, "translations remain"
    yield from (bytes(content[begin : begin + CHUNK]) for begin in range(0, len(content), CHUNK))


def aligned_text(text: str, numbers: Sequence[int]) -> AlignedText:
    """Return a translation with its links.

    Args:
        text: the translation.
        numbers: four for each link: the begin and end of a span of the sentence, then of a span of the translation.
    """
    ends = iter(numbers)
    return AlignedText(text, [(Span(a, b), Span(c, d)) for a, b, c, d in zip(ends, ends, ends, ends, strict=True)])


if __name__ == "__main__":
    main()
