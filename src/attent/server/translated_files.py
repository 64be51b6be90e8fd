"""Translated documents, kept in memory under unguessable names until clients download them."""

import re
import threading
import time
import uuid
from typing import NamedTuple

# Maximum bytes and number of documents, beyond which the oldest are deleted.
MAX_BYTES, MAX_FILES = 2**27, 10_000
# Maximum characters of a client's name for a document.
MAX_NAME = 100
UNSAFE = re.compile(r"[^\w.-]+")


class TranslatedFile(NamedTuple):
    """A translated document.

    Args:
        content: the bytes of the file.
        name: the file name for the client.
        expiry: the time when it is deleted, on the monotonic clock.
    """

    content: bytes
    name: str
    expiry: float


class TranslatedFiles:
    """Stores translated documents.

    Args:
        lifetime: seconds after which a document is deleted.
        max_bytes: maximum bytes of all documents; the oldest are deleted first.
    """

    def __init__(self, lifetime: float, max_bytes: int = MAX_BYTES) -> None:
        self._lifetime, self._max_bytes = lifetime, max_bytes
        # oldest first
        self._files: dict[str, TranslatedFile] = {}
        self._lock = threading.Lock()

    def save(self, content: bytes, name: str) -> str:
        """Save a document and return the name to download it by.

        Args:
            content: the document.
            name: the file name for the client.
        """
        name = safe_name(name)
        key = f"{uuid.uuid4()}.{name}"
        with self._lock:
            excess = sum(len(file.content) for file in self._files.values()) + len(content) - self._max_bytes
            while self._files and (excess > 0 or len(self._files) >= MAX_FILES):
                excess -= len(self._files.pop(next(iter(self._files))).content)
            self._files[key] = TranslatedFile(content, name, time.monotonic() + self._lifetime)
        return key

    def find(self, key: str) -> TranslatedFile | None:
        """Return the document with this name, if there is one."""
        self.delete_expired()
        return self._files.get(key)

    def delete_expired(self) -> None:
        """Delete expired documents."""
        with self._lock:
            for key in [key for key, file in self._files.items() if file.expiry <= time.monotonic()]:
                del self._files[key]


def safe_name(name: str) -> str:
    """Return a safe file name: letters, digits, dots and hyphens, without folders, with the original extension."""
    stem, dot, ending = re.split(r"[/\\]", name)[-1].rpartition(".")
    return f"{UNSAFE.sub('_', stem)[:MAX_NAME].strip('.') or 'document'}{dot}{UNSAFE.sub('_', ending)[:MAX_NAME]}"
