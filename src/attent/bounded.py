"""Functions that read files with limits on size and nesting depth, and that reject pipes and devices."""

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
    """Open a regular file for reading; reject pipes and devices without blocking. Symbolic links are followed.

    Raises:
        OSError: the file cannot be opened.
        DataError: it is not a regular file. Messages in this module leave it to the caller to name the file.
    """
    return open(path, "rb", opener=regular)


def regular(path: Path | str, flags: int) -> int:
    """Return the descriptor of a regular file, for `open(path, opener=regular)`; errors as for `open_regular`."""
    extra = (getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
    descriptor = os.open(path, sum(extra, flags), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("it is not a regular file")
    return descriptor


def bytes_of(file: io.BufferedReader, limit: int) -> bytes:
    """Read the content of an open file, which may be a pipe.

    Args:
        file: the open file.
        limit: the maximum size, in bytes.

    Raises:
        OSError: the file cannot be read.
        DataError: the file is larger than `limit`.
    """
    size = os.fstat(file.fileno()).st_size
    content = file.read(limit + 1) if size <= limit else b""
    if max(size, len(content)) > limit:
        raise DataError(f"it has more than {limit:,} bytes")
    return content


def text_of(file: io.BufferedReader, limit: int) -> str:
    """Read an open file as UTF-8, keeping its line breaks; arguments and errors as for `bytes_of`.

    Raises:
        DataError: also if the content is not valid UTF-8.
    """
    content = bytes_of(file, limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: {error}") from error


def read_text(path: Path | str, limit: int) -> str:
    """Read a regular file as UTF-8; limit and errors as for `text_of` and `open_regular`."""
    with open_regular(path) as file:
        return text_of(file, limit)


def read_json(path: Path | str, limit: int) -> Any:
    """Read a JSON file; arguments and errors as for `read_text`.

    Raises:
        DataError: also if the content is not valid JSON, or is nested more than 50 levels deep.
    """
    text = read_text(path, limit)
    try:
        content = json.loads(text)
    except RecursionError:
        raise DataError(f"it is nested more than {DEEPEST} deep") from None
    # also raised for a number with more digits than Python accepts
    except ValueError as error:
        raise DataError(f"it is not valid JSON: {error}") from error
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
    # an escape may encode a lone surrogate, which cannot be written as UTF-8
    if "\\ud" in text.lower():
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"it contains text that is not valid Unicode: {error.reason}") from error
    return content
