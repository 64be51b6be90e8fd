"""Copies of run folders that nothing changes any more: what a server maps its weights from.

Who writes into a file that is mapped changes what is computed, and who shortens it ends the process by a signal. A copy
is taken of files that did not change meanwhile, each of them one that a stamp names, and its weights have no name in
any folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from attent.bounded import open_regular
from attent.errors import DataError, RunError
from attent.runs.config import CONFIG, read_config
from attent.runs.durable import HIDDEN, LOG
from attent.runs.folder import MAX_HASHED, MODEL
from attent.runs.weights import FILES, metadata_of
from attent.text.tokenizer import MAX_FILE

# Of each file its name, device, inode, bytes, and when its content and its entry were last written, in nanoseconds:
# rsync -a and cp -p set back the former, and nothing sets back the latter.
Stamp = frozenset[tuple[str, int, int, int, int, int]]
WEIGHTS = ".safetensors"
# Seconds after which a file that is written again has another time: clocks of file systems tick every 10 ms at the
# longest.
TICK = 0.05
# Bytes that are copied at a time.
CHUNK = 2**20
# On a disk by the Filesystem Hierarchy Standard, which /tmp need not be: pages of a file that a process has read need
# not stay in memory.
DISK = "/var/tmp"
DESCRIPTORS = Path("/proc/self/fd" if sys.platform == "linux" else "")


class UnsettledError(RunError):
    """A run folder that changes while it is read."""


def stamp_of(path: Path) -> Stamp:
    """Return what tells whether a folder's files are the same.

    Its log and hidden files, which drafts are, do not count.
    """
    entries = set[tuple[str, int, int, int, int, int]]()
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            # OSError: it has been removed meanwhile
            with suppress(OSError):
                if file.name != LOG and not file.name.startswith(HIDDEN) and file.is_file():
                    # what the system says of an open file, which on Windows a folder's entry lacks
                    entries.add((file.name, *_identity(Path(file.path).stat())))
    return frozenset(entries)


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_bound(path: Path) -> bool:
    """Return whether a run's weights have a digest, and those of its other files, as all that are finished have.

    Raises:
        RunError: the config or the weights are missing or damaged.
    """
    return MODEL in read_config(path).digests and FILES in metadata_of(path / MODEL)


@contextmanager
def snapshot(path: Path, stamp: Stamp) -> Iterator[Path]:
    """Copy a run folder for the length of a block; what is mapped in the block stays mapped after it.

    Args:
        path: the run folder.
        stamp: of its files, taken by `stamp_of` before: the copy is of these or there is none.

    Raises:
        RunError: the folder has no config, or a file cannot be read or copied, or large weights have not the digest of
            the config. Errors of the block that name the copy name the run folder instead.
        UnsettledError: a file has changed since the stamp was taken.
    """
    if not any(name == CONFIG for name, *_ in stamp):
        # says what is wrong with the path
        read_config(path)
    # a file that is written after this has another time than in the stamp
    time.sleep(TICK)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="attent-run-", ignore_cleanup_errors=True))
        except OSError as error:
            raise RunError(f"{path} cannot be copied to be served: {error.strerror}") from error
        copy = Path(folder) / (path.resolve().name or "run")
        copy.mkdir()
        try:
            digests: dict[str, str] = {}
            for name, *identity in sorted(stamp, key=lambda entry: entry[0] != CONFIG):
                size = identity[2]
                if size > MAX_FILE and not name.endswith(WEIGHTS):
                    continue
                target = stack.enter_context(
                    _unlinked(copy / name, size) if name.endswith(WEIGHTS) else (copy / name).open("wb")
                )
                digest = _copy(path / name, tuple(identity), target, is_hashed=size > MAX_HASHED)
                # smaller ones are compared where they are read
                if digest is not None and digests.get(name, digest) != digest:
                    raise RunError(
                        f"{path / name} is damaged: it has not the SHA-256 that digests names in {path / CONFIG}"
                    )
                if name.endswith(WEIGHTS):
                    # pages that a disk does not have yet stay in memory
                    os.fsync(target.fileno())
                if name == CONFIG:
                    # a damaged one is refused where it is read
                    with suppress(RunError):
                        digests = read_config(copy).digests
            if stamp_of(path) != stamp:
                raise UnsettledError(f"{path} changed while it was read")
            yield copy
        except Exception as error:
            message = str(error).replace(str(copy), str(path))
            if isinstance(error, OSError):
                raise RunError(message) from error
            error.args = (message,)
            raise


def _copy(source: Path, identity: tuple[int, ...], target: IO[bytes], *, is_hashed: bool) -> str | None:
    """Copy the file of an identity, and return its SHA-256 if that is asked for."""
    hasher = hashlib.sha256() if is_hashed else None
    try:
        with open_regular(source) as file:
            # at first too: what is being written is not copied in vain
            if is_same := _identity(os.fstat(file.fileno())) == identity:
                while chunk := file.read(CHUNK):
                    target.write(chunk)
                    if hasher is not None:
                        hasher.update(chunk)
                is_same = _identity(os.fstat(file.fileno())) == identity
    except (FileNotFoundError, DataError):
        is_same = False
    if not is_same:
        raise UnsettledError(f"{source} changed while it was read")
    target.flush()
    return None if hasher is None else hasher.hexdigest()


def _unlinked(path: Path, size: int) -> IO[Any]:
    """Open a file to write that ends with its last mapping, and that a path names until it is closed.

    On Linux it has no name of its own, so that a killed process leaves nothing behind, and lies on a disk, or in memory
    if none can hold it. Elsewhere it is removed with its folder.
    """
    if sys.platform == "linux" and DESCRIPTORS.is_dir():
        try:
            with tempfile.TemporaryFile(dir=os.environ.get("TMPDIR") or DISK) as file:
                if size:
                    os.posix_fallocate(file.fileno(), 0, size)
                descriptor = os.dup(file.fileno())
        # the disk is full, or only read
        except OSError:
            descriptor = os.memfd_create("attent-weights")
        path.symlink_to(DESCRIPTORS / str(descriptor))
        return os.fdopen(descriptor, "wb")
    return path.open("wb")
