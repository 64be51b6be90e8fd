"""Temporary storage of translated documents until clients download them.

They are stored in a private folder under unguessable names.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from attent.server.errors import RequestError

PREFIX = "attent-documents-"
# Maximum bytes and number of documents, beyond which the oldest are deleted.
MAX_BYTES, MAX_FILES = 2**30, 10_000
# Maximum characters of a client's name for a document.
MAX_NAME = 100
UNSAFE = re.compile(r"[^\w.-]+")


class TranslatedFile(NamedTuple):
    """A translated document.

    Args:
        path: the path of the file; it contains no part of the client's file name.
        name: the file name for the client.
        size: the size in bytes.
        expiry: the time when it is deleted, on the monotonic clock.
    """

    path: Path
    name: str
    size: int
    expiry: float


class PrivateFolder:
    """A folder of this process in the system's temporary folder, accessible only to this user.

    Its lock shows that its owner is alive: a killed server leaves an unlocked folder, which the next server deletes,
    and systemd's cleanup of `/tmp` skips locked folders. On systems that cannot lock folders (Windows), none is
    deleted.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _lock(self.path)

    @property
    def is_whole(self) -> bool:
        """Return whether the folder still exists and was not replaced by another of the same name."""
        with suppress(OSError):
            status = os.lstat(self.path)
            return self._lock is None or os.path.samestat(status, os.fstat(self._lock))
        return False

    def close(self) -> None:
        """Delete the folder and its contents."""
        if self.is_whole:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class TranslatedFiles:
    """Stores translated documents, and deletes those left by killed servers.

    Args:
        lifetime: seconds after which a document is deleted.
        max_bytes: maximum bytes of all documents; the oldest are deleted first.
    """

    def __init__(self, lifetime: float, max_bytes: int = MAX_BYTES) -> None:
        self._lifetime, self._max_bytes = lifetime, max_bytes
        self._folder: PrivateFolder | None = None
        # oldest first
        self._files: dict[str, TranslatedFile] = {}
        self._lock = threading.Lock()
        delete_abandoned()

    def save(self, content: bytes, name: str) -> str:
        """Save a document and return the name to download it by.

        Args:
            content: the document.
            name: the file name for the client.

        Raises:
            RequestError: the disk is full or cannot be written to.
        """
        name, key = safe_name(name), uuid.uuid4()
        with self._lock:
            self._delete_expired()
            self._make_room(len(content))
            try:
                if self._folder is not None and not self._folder.is_whole:
                    self._clear()
                if self._folder is None:
                    self._folder = PrivateFolder()
                path = self._folder.path / key.hex
                _write(path, content)
            except OSError as error:
                raise storage_error(error) from error
            self._files[f"{key}.{name}"] = TranslatedFile(path, name, len(content), time.monotonic() + self._lifetime)
        return f"{key}.{name}"

    def find(self, key: str) -> TranslatedFile | None:
        """Return the document with this name, if there is one."""
        self.delete_expired()
        return self._files.get(key)

    def delete_expired(self) -> None:
        """Delete expired documents."""
        with self._lock:
            self._delete_expired()

    def close(self) -> None:
        """Delete all documents and their folder."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._files.clear()
        if self._folder is not None:
            self._folder.close()
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
        path = self._files.pop(key).path
        # Windows cannot delete a file that is being sent; `close` does
        with suppress(OSError):
            path.unlink()


def safe_name(name: str) -> str:
    """Return a safe file name: letters, digits, dots and hyphens, without folders, with the original extension."""
    stem, dot, ending = re.split(r"[/\\]", name)[-1].rpartition(".")
    return f"{UNSAFE.sub('_', stem)[:MAX_NAME].strip('.') or 'document'}{dot}{UNSAFE.sub('_', ending)[:MAX_NAME]}"


def storage_error(error: OSError) -> RequestError:
    """Return the error for a document that cannot be stored."""
    return RequestError(507, f"The server cannot store the document: {error.strerror or 'the disk cannot be written'}")


def delete_abandoned() -> None:
    """Delete folders left by killed processes of this user."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (lock := _lock(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int | None:
    """Lock an unlocked folder of this user; return its descriptor, or None if it cannot be locked."""
    try:
        import fcntl

        # O_NOFOLLOW: a link could lead anywhere
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid() and os.path.samestat(os.lstat(path), os.fstat(lock)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _write(path: Path, content: bytes) -> None:
    """Write a file; on failure, leave none behind."""
    try:
        path.write_bytes(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise
