"""The process of a document.

It parses strangers' bytes apart from the server, without PyTorch, and within limits of the system.
`python -m attent.server.document_worker` cuts one document into sentences, or puts translations into one,
and ends: the documents of two clients are never in one process. `document_frames` has the conversation with the server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from attent.documents import Document, read_document
from attent.documents.aligned import join_aligned
from attent.documents.inline import AlignedText
from attent.errors import AttentError
from attent.server.document_frames import (
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
from attent.text.sentences import SplitText, split_sentences
from attent.text.units import Span

# Bytes of memory that the process may reserve, and seconds of a processor that it may compute.
MEMORY, SECONDS = 512 * 2**20, 30
# Files that it may hold open: modules that Python imports when they are first needed.
FILES = 16
# What is added to the nice value: requests go first.
NICENESS = 5


def main() -> None:
    """Serve one document."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    limit_process()
    # loads a library, before there is a document
    split_sentences("A.", "en")
    write_frame(sink, DATA)
    sink.flush()
    try:
        ending = _receive(source).decode()
        document = read_document(b"".join(_frames(source)), ending)
        write_frame(sink, DATA, "\n".join(line.text for line in document.lines)[:SAMPLE].encode("utf-8", "replace"))
        sink.flush()
        work, language = _receive(source).decode().split(" ")
        frames = _sentences(document, language) if work == "read" else _rendered(document, language, source)
        for frame in frames:
            write_frame(sink, DATA, frame)
        write_frame(sink, END)
    except AttentError as error:
        write_frame(sink, ERROR, str(error).encode("utf-8", "replace"))
    # the server sees an end without an answer
    except (MemoryError, EOFError, BrokenPipeError):
        os._exit(1)
    except Exception as error:
        # its message may hold text of the document, which is nobody's to log
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
        write_frame(sink, FAULT, f"{type(error).__name__} at {line}".encode("utf-8", "replace"))
    sink.flush()


def limit_process() -> None:
    """Bound this process: it ends with the server, has a low priority, and neither writes files nor starts processes.

    Bounds that the system does not know are left out; the server ends a process that takes too long.
    """
    # a terminal and systemd send these to all processes of a server, which ends its workers itself
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        # PR_SET_PDEATHSIG: also where the server is killed while this process computes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    try:
        import resource

        os.nice(NICENESS)
    except (ImportError, AttributeError):
        return
    bounds = {"AS": MEMORY, "CPU": SECONDS, "NOFILE": FILES, "FSIZE": 0, "NPROC": 0, "CORE": 0}
    for name, bound in bounds.items():
        # lower ones, which somebody chose, stay
        with suppress(AttributeError, OSError, ValueError):
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            size = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.setrlimit(kind, (size, size))


def _receive(source: IO[bytes]) -> bytes:
    return read_frame(source, 2**32)[1]


def _frames(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of frames, to the end."""
    while (frame := read_frame(source, 2**32))[0] != END:
        yield frame[1]


def _sentences(document: Document, language: str) -> Iterator[bytes]:
    """Yield the sentences of a document: one a line, which has none within it."""
    batch = list[str]()
    for line in document.lines:
        mark = MARKED if line.elements else PLAIN
        for sentence in split_sentences(line.text, language).sentences:
            batch.append(mark + sentence)
            if len(batch) == BATCH:
                yield "\n".join(batch).encode("utf-8", "replace")
                batch = []
    if batch:
        yield "\n".join(batch).encode("utf-8", "replace")


def _rendered(document: Document, language: str, source: IO[bytes]) -> Iterator[bytes]:
    """Yield the document with the translations of its sentences, which are read as they are needed."""
    rows = (row for frame in _frames(source) for row in json.loads(frame))
    lines = (split_sentences(line.text, language) for line in document.lines)
    content = memoryview(document.render(join_aligned(*_translated(split, rows)) for split in lines))
    assert next(rows, None) is None, "translations remain"
    yield from (bytes(content[begin : begin + CHUNK]) for begin in range(0, len(content), CHUNK))


def _translated(
    split: SplitText, rows: Iterator[tuple[int, int, str, list[int]]]
) -> tuple[SplitText, list[AlignedText]]:
    """Return the pieces of a line's sentences, and their translations.

    Args:
        split: the sentences.
        rows: of each piece its characters, those after it that are not translated, its translation, and the links
            between both as four numbers each: the begin and end of a span of the piece, and of one of the translation.
    """
    between, pieces, translations = [split.between[0]], list[str](), list[AlignedText]()
    for sentence, after in zip(split.sentences, split.between[1:], strict=True):
        begin = 0
        while begin < len(sentence):
            size, gap, text, ends = next(rows)
            end = begin + size
            pieces.append(sentence[begin:end])
            between.append(sentence[end : end + gap])
            numbers = iter(ends)
            links = [(Span(a, b), Span(c, d)) for a, b, c, d in zip(numbers, numbers, numbers, numbers, strict=True)]
            translations.append(AlignedText(text, links))
            begin = end + gap
        between[-1] += after
    return SplitText(tuple(between), tuple(pieces)), translations


if __name__ == "__main__":
    main()
