"""Atomic writes of files and folders, under a temporary name, synced and renamed; and locks of open files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from attent.errors import RunError

# The first and the last characters of temporary names, by which the drafts of a killed process are recognized.
HIDDEN, PART = ".", ".part"
# Windows lets no other process read a locked byte: lock one that no log reaches, at the largest offset that its locks
# can name.
LOCK_OFFSET = 2**31 - 2


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Write a file that replaces `path` when the block ends; if the block fails, `path` stays as it was.

    Raises:
        RunError: it cannot be written, for want of space or of permission.
    """
    draft = path.with_name(f"{HIDDEN}{path.name}{PART}")
    with said_clearly(path):
        # the draft may be a link to another file
        draft.unlink(missing_ok=True)
        try:
            yield draft
            _share(draft)
            sync(draft)
            draft.replace(path)
            sync(path.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Write a file of text by `new_file`."""
    with new_file(path) as file:
        file.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder that replaces `path` when the block ends; if the block fails, `path` stays as it was.

    Raises:
        RunError: it cannot be written, for want of space or of permission.
    """
    with said_clearly(path):
        draft = draft_of(path)
        try:
            yield draft
            settle(draft, path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def draft_of(path: Path) -> Path:
    """Make an empty folder beside the path, and its parents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{HIDDEN}{path.name}.", suffix=PART, dir=path.parent))


def settle(draft: Path, path: Path) -> None:
    """Sync a folder, and move it to a path, where it replaces an older one."""
    _share(draft)
    for file in draft.iterdir():
        sync(file)
    sync(draft)
    if path.exists():
        old = draft_of(path)
        path.rename(old / path.name)
        try:
            draft.rename(path)
        except BaseException:
            (old / path.name).rename(path)
            old.rmdir()
            raise
        shutil.rmtree(old)
    else:
        draft.rename(path)
    sync(path.parent)


def _share(path: Path) -> None:
    """Give a file or a folder and its files the default permissions.

    Mkdtemp and safetensors restrict them to the owner.
    """
    mask = os.umask(0)
    os.umask(mask)
    for file in path.iterdir() if path.is_dir() else ():
        file.chmod(0o666 & ~mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def sweep(folder: Path) -> None:
    """Remove the drafts of killed processes from a folder."""
    for draft in folder.glob(f"{HIDDEN}*{PART}"):
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


def check_links(*paths: Path) -> None:
    """Check that none of these files and folders is a symbolic link: writing through one changes another file.

    Raises:
        RunError: one is.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a symbolic link, and a run is not written through one (cp -rL makes a copy without links)"
            )


def sync(path: Path) -> None:
    """Wait until the content of a file or folder would survive a power failure."""
    # Only POSIX can open a folder, and needs it to be synced.
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def said_clearly(path: Path) -> Iterator[None]:
    """Turn errors of writing a path into a RunError that names it."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def claim(file: IO[Any], run: Path) -> bool:
    """Lock an open file of a run until it is closed or its process ends, however that happens.

    On file systems without locks nothing is locked.

    Args:
        file: open for writing.
        run: the run folder, for the message.

    Returns:
        True if it is locked.

    Raises:
        RunError: another process has locked it.
    """
    try:
        _lock(file.fileno())
    except (BlockingIOError, PermissionError) as error:
        raise RunError(f"{run} is being trained by another process") from error
    except OSError:
        return False
    return True


def _lock(descriptor: int) -> None:
    """Lock by fcntl on Unix, by msvcrt on Windows."""
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_on_windows(descriptor: int) -> None:
    try:
        import msvcrt
    except ImportError:
        return
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, LOCK_OFFSET, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
