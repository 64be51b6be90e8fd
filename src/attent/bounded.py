"""Readers of files with limits of size and depth, which refuse pipes and devices."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

from attent.errors import DataError

# Maximum depth of nested lists and objects in JSON; a config has fewer than ten levels.
DEEPEST = 50


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open a regular file to read; refuse a pipe or a device without waiting for it. Links are followed.

    Raises:
        OSError: the system refuses it.
        DataError: it is no regular file. The messages of this module do not name the file; the caller does.
    """
    return open(path, "rb", opener=regular)


def regular(path: Path | str, flags: int) -> int:
    """Return the descriptor of a regular file, for `open(path, opener=regular)`; errors as `open_regular`."""
    extra = (getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
    descriptor = os.open(path, sum(extra, flags), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("it is no regular file")
    return descriptor


def bytes_of(file: io.BufferedReader, limit: int) -> bytes:
    """Read an open file, which may be a pipe.

    Args:
        file: to read.
        limit: maximum size, in bytes.

    Raises:
        OSError: the system refuses it.
        DataError: it is larger.
    """
    size = os.fstat(file.fileno()).st_size
    content = file.read(limit + 1) if size <= limit else b""
    if max(size, len(content)) > limit:
        raise DataError(f"it has more than {limit:,} bytes")
    return content


def text_of(file: io.BufferedReader, limit: int) -> str:
    """Read the UTF-8 of an open file, without changing its line breaks; arguments and errors as `bytes_of`.

    Raises:
        DataError: also if it is no UTF-8.
    """
    content = bytes_of(file, limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: {error}") from error


def read_text(path: Path | str, limit: int) -> str:
    """Read a regular file of UTF-8; the size and errors as of `text_of` and `open_regular`."""
    with open_regular(path) as file:
        return text_of(file, limit)


def read_json(path: Path | str, limit: int) -> Any:
    """Read a file of JSON; arguments and errors as `read_text`, and DataError.

    It is no JSON, or nested more than 50 deep.
    """
    text = read_text(path, limit)
    try:
        content = json.loads(text)
    except RecursionError:
        raise DataError(f"it is nested more than {DEEPEST} deep") from None
    # also a number of more digits than Python reads
    except ValueError as error:
        raise DataError(f"it is no JSON: {error}") from error
    level = [content]
    for _ in range(DEEPEST):
        inner = (
            part
            for outer in level
            if isinstance(outer, dict | list)
            for part in (outer.values() if isinstance(outer, dict) else outer)
        )
        level = [part for part in inner if isinstance(part, dict | list)]
    if level:
        raise DataError(f"it is nested more than {DEEPEST} deep")
    # an escape may stand for half a character, which cannot be written again
    if "\\ud" in text.lower():
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"it holds text that is no Unicode: {error.reason}") from error
    return content
