"""Atomic writes of files and folders (written under a temporary name, synced, renamed), and locks of run folders."""

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from attent import system
from attent.bounded import regular
from attent.errors import DataError, RunError, refuse, reraise

# Prefix and suffix of temporary names, which identify the drafts of killed processes.
HIDDEN, PART = ".", ".part"
# The log of a run; a lock on it locks the run.
LOG = "log.jsonl"
# Windows has no such flag, but creating links requires a permission there.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Maximum seconds between creating and locking a draft.
LOCK_DELAY = 10.0
# On Windows, other processes cannot read a locked byte, so lock the byte at the largest possible offset, which no log
# reaches.
LOCK_OFFSET = 2**31 - 2


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Write a file that replaces `path` when the block ends; if the block fails, `path` is unchanged.

    Raises:
        RunError: the file cannot be written, for lack of space or permission.
    """
    draft = path.with_name(f"{HIDDEN}{path.name}{PART}")
    with said_clearly(path):
        # a stale draft may be a link to another file
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
    """Write a text file atomically, using `new_file`; line ends are kept, as everywhere in a run."""
    with new_file(path) as file:
        file.write_text(text, encoding="utf-8", newline="")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder that replaces `path` when the block ends; if the block fails, `path` is unchanged.

    Raises:
        RunError: the folder cannot be written, for lack of space or permission.
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
    """Create an empty draft folder next to a path, along with missing parents, and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{HIDDEN}{path.name}.", suffix=PART, dir=path.parent))


def settle(draft: Path, path: Path) -> None:
    """Sync a folder, and move it to a path, replacing an older folder."""
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

    mkdtemp and safetensors restrict them to the owner.
    """
    mask = os.umask(0)
    os.umask(mask)
    for file in path.iterdir() if path.is_dir() else ():
        file.chmod(0o666 & ~mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def sweep(folder: Path) -> None:
    """Remove drafts left by killed processes from a folder."""
    for draft in folder.glob(f"{HIDDEN}*{PART}"):
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


def check_links(*paths: Path) -> None:
    """Check that none of these paths is a symbolic link, since writing through it would change another file.

    Raises:
        RunError: one of them is a symbolic link.
    """
    refuse(
        *(
            (
                path.is_symlink(),
                f"{path} is a symbolic link, and runs are not written through links (cp -rL makes a copy without "
                "links)",
            )
            for path in paths
        ),
        kind=RunError,
    )


def sync(path: Path) -> None:
    """Sync a file or folder to disk, so that it survives a power failure."""
    # Folders can be opened, and must be synced, everywhere else.
    if path.is_dir() and system.IS_WINDOWS:
        return
    descriptor = os.open(path, os.O_RDWR if system.IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def said_clearly(path: Path) -> Iterator[None]:
    """Convert errors of writing to a path into a RunError that names it."""
    with reraise(RunError, f"{path} cannot be written", OSError, SafetensorError):
        yield


def claim(file: IO[Any], run: Path) -> bool:
    """Lock an open file of a run until it is closed or its process ends.

    On file systems without locks, nothing is locked.

    Args:
        file: a file open for writing.
        run: the run folder, for the message.

    Returns:
        True if the file is locked.

    Raises:
        RunError: another process has locked the file.
    """
    try:
        _lock(file.fileno())
    except (BlockingIOError, PermissionError) as error:
        raise RunError(f"{run} is being trained by another process") from error
    except OSError:
        return False
    return True


def _lock(descriptor: int) -> None:
    """Lock a file using fcntl on Unix and msvcrt on Windows."""
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


@contextmanager
def held(path: Path | str) -> Iterator[None]:
    """Lock a run against other processes until the block ends.

    Raises:
        RunError: another process is training it, or the folder cannot be written.
    """
    with lock_run(Path(path)):
        yield


def sweep_drafts(path: Path) -> None:
    """Remove the drafts of a run folder left by processes that ended before training began."""
    for draft in path.parent.glob(f"{HIDDEN}{glob.escape(path.name)}.{'?' * 8}{PART}"):
        # OSError: another process has moved or removed the draft in the meantime
        with suppress(OSError, RunError):
            if (
                draft.is_symlink()
                or time.time() - (log if (log := draft / LOG).is_file() else draft).stat().st_mtime < LOCK_DELAY
            ):
                continue
            if not log.is_file():
                draft.rmdir()  # killed before it had a log; rmdir removes only empty folders
                continue
            with _log_in(draft) as file:
                if claim(file, draft):
                    if system.IS_WINDOWS:
                        file.close()
                    shutil.rmtree(draft, ignore_errors=True)


def _log_in(folder: Path) -> IO[str]:
    check_links(file := folder / LOG)
    with said_clearly(file), reraise(RunError, f"{file} cannot be written", DataError):
        return open(
            file,
            "a",
            encoding="utf-8",
            newline="",
            buffering=1,
            opener=lambda path, flags: regular(path, flags | NO_LINK),
        )


def lock_run(path: Path) -> IO[str]:
    """Open a run's log for appending, and thereby lock the run; check that the run contains no links."""
    log = _log_in(path)
    try:
        claim(log, path)
        # from now on, no other training adds or removes files
        with said_clearly(path):
            check_links(*path.rglob("*"))
    except RunError:
        log.close()
        raise
    return log
