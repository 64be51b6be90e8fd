"""Translated documents, until their clients have fetched them: in a folder of the server's own, under names that nobody can guess."""

from __future__ import annotations

import re
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from attent.serve.translation.errors import RequestError

# Bytes of all documents, after which the oldest are deleted, and their number.
MAX_BYTES, MAX_FILES = 2**30, 10_000
# Characters of a client's name for a document.
MAX_NAME = 100
UNSAFE = re.compile(r"[^\w.-]+")


class TranslatedFile(NamedTuple):
    """A translated document.

    Args:
        path: where it is; no part of its client's name stands in it.
        name: for the client.
        size: in bytes.
        expiry: when it is deleted, on the monotonic clock.
    """

    path: Path
    name: str
    size: int
    expiry: float


class TranslatedFiles:
    """Holds translated documents.

    Args:
        lifetime: seconds after which a document is deleted.
        max_bytes: of all of them; the oldest are deleted first.
    """

    def __init__(self, lifetime: float, max_bytes: int = MAX_BYTES) -> None:
        self._lifetime, self._max_bytes = lifetime, max_bytes
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        # the oldest first
        self._files: dict[str, TranslatedFile] = {}
        self._lock = threading.Lock()

    def save(self, content: bytes, name: str) -> str:
        """Save a document, and return the name to fetch it by.

        Args:
            content: the document.
            name: of the client's own document.

        Raises:
            RequestError: the disk is full, or cannot be written.
        """
        name, key = safe_name(name), uuid.uuid4()
        with self._lock:
            self._delete_expired()
            self._make_room(len(content))
            try:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="attent-documents-")
                path = Path(self._folder.name) / key.hex
                _write(path, content)
            except OSError as error:
                raise storage_error(error) from error
            self._files[f"{key}.{name}"] = TranslatedFile(path, name, len(content), time.monotonic() + self._lifetime)
        return f"{key}.{name}"

    def find(self, key: str) -> TranslatedFile | None:
        """Return the document of this name, if there is one."""
        self.delete_expired()
        return self._files.get(key)

    def delete_expired(self) -> None:
        """Delete the documents whose time is over."""
        with self._lock:
            self._delete_expired()

    def close(self) -> None:
        """Delete all documents, and the folder."""
        with self._lock:
            self._files.clear()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _delete_expired(self) -> None:
        for key in [key for key, file in self._files.items() if file.expiry <= time.monotonic()]:
            self._delete(key)

    def _make_room(self, size: int) -> None:
        excess = sum(file.size for file in self._files.values()) + size - self._max_bytes
        while self._files and (excess > 0 or len(self._files) >= MAX_FILES):
            oldest = next(iter(self._files))
            excess -= self._files[oldest].size
            self._delete(oldest)

    def _delete(self, key: str) -> None:
        self._files.pop(key).path.unlink(missing_ok=True)


def safe_name(name: str) -> str:
    """Return a name for a file: letters, digits, dots and hyphens, without folders, and with the ending that it had."""
    stem, dot, ending = re.split(r"[/\\]", name)[-1].rpartition(".")
    return f"{UNSAFE.sub('_', stem)[:MAX_NAME].strip('.') or 'document'}{dot}{UNSAFE.sub('_', ending)[:MAX_NAME]}"


def storage_error(error: OSError) -> RequestError:
    """Return the error for a document that the disk does not take."""
    return RequestError(507, f"The server cannot store the document: {error.strerror or 'the disk cannot be written'}")


def _write(path: Path, content: bytes) -> None:
    """Write a file, or leave none."""
    try:
        path.write_bytes(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise
