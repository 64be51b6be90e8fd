"""A lock that vanishes with the process that holds it, however that ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from attent.errors import RunError

# Windows keeps others from reading what is locked: a byte that no log reaches, at the largest place that its locks can name.
FAR = 2**31 - 2


def claim(file: IO[str], run: Path) -> bool:
    """Lock an open file of a run until it is closed, or its process ends.

    Where the file system has no locks, nothing is locked.

    Args:
        file: open for writing.
        run: the run folder, for the message.

    Returns:
        Whether it is locked.

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
    """Lock by what the system has: fcntl on Unix, msvcrt on Windows."""
    try:
        import fcntl
    except ImportError:
        _lock_far(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_far(descriptor: int) -> None:
    try:
        import msvcrt
    except ImportError:
        return
    here = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, FAR, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    finally:
        os.lseek(descriptor, here, os.SEEK_SET)
