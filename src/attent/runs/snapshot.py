"""Immutable copies of run folders, from which a server maps its weights.

Writing to a mapped file would change the weights in use, and truncating it would kill the process with a signal. A copy
only contains files that did not change during copying, as verified by a stamp, and its weights have no name in any
folder.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from attent import system
from attent.bounded import open_regular
from attent.errors import DataError, RunError, reraise
from attent.runs.config import CONFIG, read_config
from attent.runs.durable import HIDDEN, LOG
from attent.runs.folder import MAX_HASHED, MODEL
from attent.runs.weights import FILES, metadata_of
from attent.text.tokenizer import MAX_FILE

# For each file: name, device, inode, size in bytes, and the times of the last change of content and of inode in
# nanoseconds. rsync -a and cp -p reset the former time; nothing resets the latter. On Windows, it is 0.
Stamp = frozenset[tuple[str, int, int, int, int, int]]
WEIGHTS = ".safetensors"
# Seconds after which rewriting a file changes its time: file system clocks tick at least every 10 ms.
TICK = 0.05
# Seconds after a change during which the next one may have the same time, whatever the clocks' difference.
RECENT = 1.0
# Bytes copied at a time.
CHUNK = 2**20
# On a disk according to the Filesystem Hierarchy Standard, unlike /tmp, so that pages of the file can leave memory.
DISK = "/var/tmp"
DESCRIPTORS = Path("/proc/self/fd" if system.IS_LINUX else "")


class UnsettledError(RunError):
    """Raised when a run folder changes while it is being read."""


def stamp_of(path: Path) -> Stamp:
    """Return a stamp that identifies the current files of a folder.

    The log and hidden files, such as drafts, are ignored.
    """
    entries = set[tuple[str, int, int, int, int, int]]()
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            # OSError: the file has been removed in the meantime
            with suppress(OSError):
                if file.name != LOG and not file.name.startswith(HIDDEN) and file.is_file():
                    # as for an open file: on Windows, folder entries lack some of these values
                    entries.add((file.name, *_identity(Path(file.path).stat())))
    return frozenset(entries)


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    changed = 0 if system.IS_WINDOWS else status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed


def is_bound(path: Path) -> bool:
    """Return whether a run has digests of its weights and other files, as finished runs do.

    Raises:
        RunError: the config or the weights are missing or damaged.
    """
    return MODEL in read_config(path).digests and FILES in metadata_of(path / MODEL)


@contextmanager
def snapshot(path: Path, stamp: Stamp) -> Iterator[Path]:
    """Copy a run folder for the duration of a block; files mapped within the block stay mapped afterwards.

    Args:
        path: the run folder.
        stamp: the stamp of the files to copy, as returned by `stamp_of` earlier.

    Raises:
        RunError: the folder has no config, a file cannot be read or copied, or the digest of large weights does not
            match the config. If an error within the block names the copy, the run folder is named instead.
        UnsettledError: a file has changed since the stamp was taken.
    """
    if not any(name == CONFIG for name, *_ in stamp):
        # raises an error with the reason
        read_config(path)
    newest = max((time_ns for *_, modified, changed in stamp for time_ns in (modified, changed)), default=0)
    if time.time_ns() - newest < RECENT * 1e9:
        # a file written after this has a different time than in the stamp
        time.sleep(TICK)
    with ExitStack() as stack:
        with reraise(RunError, f"{path} cannot be copied for serving", OSError):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="attent-run-", ignore_cleanup_errors=True))
        copy = Path(folder) / (path.resolve().name or "run")
        copy.mkdir()
        with named_as(path, copy):
            digests: dict[str, str] = {}
            for name, *identity in sorted(stamp, key=lambda entry: entry[0] != CONFIG):
                size = identity[2]
                if size > MAX_FILE and not name.endswith(WEIGHTS):
                    continue
                target = stack.enter_context(
                    _unlinked(copy / name, size) if name.endswith(WEIGHTS) else (copy / name).open("wb")
                )
                digest = _copy(path / name, tuple(identity), target, is_hashed=size > MAX_HASHED)
                # smaller files are checked when they are read
                if digest is not None and digests.get(name, digest) != digest:
                    raise RunError(f"{path / name} is damaged: its SHA-256 does not match digests in {path / CONFIG}")
                if name == CONFIG:
                    # a damaged config is refused when it is read
                    with suppress(RunError):
                        digests = read_config(copy).digests
            if stamp_of(path) != stamp:
                raise UnsettledError(f"{path} changed while it was read")
            yield copy


@contextmanager
def named_as(path: Path, copy: Path) -> Iterator[None]:
    """Name a run folder instead of its copy in the errors of a block; an `OSError` becomes a `RunError`."""
    try:
        yield
    except Exception as error:
        message = str(error).replace(str(copy), str(path))
        if isinstance(error, OSError):
            raise RunError(message) from error
        error.args = (message,)
        raise


def weight_sizes(path: Path) -> list[int]:
    """Return the sizes of a run folder's files of weights, in bytes."""
    return [size for name, _, _, size, *_ in stamp_of(path) if name.endswith(WEIGHTS)]


def forget_pages(copy: Path, *, is_new: bool = False) -> None:
    """Remove the weights of a copy from Linux's page cache, except mapped pages.

    Args:
        copy: the copy.
        is_new: whether to write it to the disk first, since other pages cannot leave the memory.
    """
    for file in copy.glob(f"*{WEIGHTS}") if system.IS_LINUX else ():
        with file.open("rb") as weights:
            if is_new:
                os.fsync(weights.fileno())
            _forget(weights)


def _forget(file: IO[bytes]) -> None:
    # macOS and Windows have no such call
    if system.IS_LINUX:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _copy(source: Path, identity: tuple[int, ...], target: IO[bytes], *, is_hashed: bool) -> str | None:
    """Copy a file, check that it has the given identity, and return its SHA-256 if requested."""
    hasher = hashlib.sha256() if is_hashed else None
    try:
        with open_regular(source) as file:
            # check before copying too, so that a file being written is not copied in vain
            if is_same := _identity(os.fstat(file.fileno())) == identity:
                while chunk := file.read(CHUNK):
                    target.write(chunk)
                    if hasher is not None:
                        hasher.update(chunk)
                is_same = _identity(os.fstat(file.fileno())) == identity
                if source.suffix == WEIGHTS:
                    _forget(file)
    except (FileNotFoundError, DataError):
        is_same = False
    if not is_same:
        raise UnsettledError(f"{source} changed while it was read")
    target.flush()
    return None if hasher is None else hasher.hexdigest()


def _unlinked(path: Path, size: int) -> IO[Any]:
    """Open a file for writing that disappears with its last mapping; the path refers to it until it is closed.

    On Linux the file has no name, so that a killed process leaves nothing behind, and it is on disk, or in memory if
    the disk is full. On other systems it is removed with its folder.
    """
    if system.IS_LINUX and DESCRIPTORS.is_dir():
        try:
            with tempfile.TemporaryFile(dir=os.environ.get("TMPDIR") or DISK) as file:
                if size:
                    os.posix_fallocate(file.fileno(), 0, size)
                descriptor = os.dup(file.fileno())
        # the disk is full or read-only
        except OSError:
            descriptor = os.memfd_create("attent-weights")
        path.symlink_to(DESCRIPTORS / str(descriptor))
        return os.fdopen(descriptor, "wb")
    return path.open("wb")
