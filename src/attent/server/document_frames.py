"""Frames: what the server and the process of a document send each other. Each has a kind, a size, and so many bytes.

1. The worker says with an empty frame that it has started.
2. The server sends the ending of the document's name, the document in any number of frames, and an end.
3. The worker answers with the beginning of the text, by which the server tells its language, and sends "read" or
   "render" and the language.
4. To "read" the worker answers with the sentences, in any number of frames, and an end. After "render" the server sends
   translations, and an end, and the worker answers with the document, and an end.

Instead of any answer there may be an error, and nothing comes after it.
"""

from __future__ import annotations

import struct
from typing import IO

HEADER = struct.Struct(">cI")
# Bytes, the end of several frames, an error to be told to the client, and a fault of the program.
DATA, END, ERROR, FAULT = b"D", b"E", b"X", b"F"
# Characters that a language is detected by.
SAMPLE = 20_000
# Sentences of a frame, and bytes of a document's: few, since no other thread of Python runs while one takes them in.
BATCH, CHUNK = 256, 2**18
# First characters of a sentence: it stands by itself, or among elements.
PLAIN, MARKED = "0", "1"


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
