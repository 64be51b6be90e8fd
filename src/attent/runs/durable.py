"""Files and folders that are whole or not there: written under another name, synced, renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from attent.errors import RunError

# What a process that was killed leaves behind is known by its first and its last characters.
HIDDEN, PART = ".", ".part"


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when the block ends; if it fails, `path` stays as it was.

    Raises:
        RunError: it cannot be written, for want of space or of permission.
    """
    draft = path.with_name(f"{HIDDEN}{path.name}{PART}")
    with said_clearly(path):
        # what lies there may be a link to another file
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


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill with files, which takes the place of `path` when the block ends; if it fails, `path` stays as it was.

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
    """An empty folder beside the path; folders on the way to it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{HIDDEN}{path.name}.", suffix=PART, dir=path.parent))


def settle(draft: Path, path: Path) -> None:
    """Make a folder durable, and move it to a path, where it takes the place of an older one."""
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
    """Give a file or a folder and its files the permissions that new ones have: mkdtemp and safetensors let their owner alone in."""
    mask = os.umask(0)
    os.umask(mask)
    for file in path.iterdir() if path.is_dir() else ():
        file.chmod(0o666 & ~mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed has left half written in a folder."""
    for left in folder.glob(f"{HIDDEN}*{PART}"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def check_links(*paths: Path) -> None:
    """Check that none of these files and folders is a symbolic link, through which others would be written.

    Raises:
        RunError: one is.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(f"{path} is a symbolic link, and a run is not written through one (cp -rL makes a copy without links)")


def sync(path: Path) -> None:
    """Wait until a file's or a folder's content would outlast a power cut."""
    # Only POSIX lets a folder be opened, and needs it to be synced.
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def said_clearly(path: Path) -> Iterator[None]:
    """What goes wrong while a path is written, as a RunError that names it."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    except SafetensorError as error:
        raise RunError(f"{path} cannot be written: {error}") from error
