"""A function in a forked process, with limits on its time and its memory. Linux only: memory is read from /proc."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 2**20
# Maximum bytes of each file that a child writes, including its output.
LARGEST_FILE = 256 * MEGABYTE


@dataclass(frozen=True)
class Limits:
    """Limits of one process.

    Args:
        seconds: seconds of wall-clock time.
        megabytes: megabytes of resident memory without mapped files, beyond those of the parent process.
    """

    seconds: float = 10.0
    megabytes: float = 250.0


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Args:
        code: the exit code; for a signal, its negative number.
        seconds: its wall-clock time.
        megabytes: the largest memory measured, counted as in `Limits`.
        out: its standard output.
        err: its standard error.
    """

    code: int
    seconds: float
    megabytes: float
    out: str
    err: str


class Child:
    """A forked process that runs a function in a folder; call `poll` until it has ended.

    Args:
        action: returns the exit code.
        folder: the working directory; standard output and error are files beside it.
        limits: the limits beyond which the process is killed.
        stdin: the file for its standard input; empty by default.
    """

    def __init__(self, action: Callable[[], int], folder: Path, limits: Limits, stdin: Path | None = None) -> None:
        self._limits, self._printed = limits, [folder.with_name(f"{folder.name}.{name}") for name in ("out", "err")]
        sys.stdout.flush()
        sys.stderr.flush()
        self._parent, self._started, self._largest = anonymous(os.getpid()), time.monotonic(), 0.0
        self.pid = os.fork()
        if self.pid == 0:
            self._run(action, folder, stdin or Path(os.devnull))

    def _run(self, action: Callable[[], int], folder: Path, stdin: Path) -> None:
        code = 1
        try:
            # garbage collection of the parent's objects would copy their memory pages
            gc.freeze()
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
            os.dup2(os.open(stdin, os.O_RDONLY), 0)
            for stream, path in enumerate(self._printed, start=1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
            os.chdir(folder)
            code = action()
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> Outcome | None:
        """Return how the process ended, or None while it runs within its limits."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            seconds = time.monotonic() - self._started
            # IndexError: the process has just ended, which the next call will notice
            with suppress(OSError, IndexError):
                self._largest = max(self._largest, anonymous(self.pid) - self._parent)
            if seconds <= self._limits.seconds and self._largest <= self._limits.megabytes:
                return None
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        # processes that it may have started without waiting for them
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        seconds = time.monotonic() - self._started
        out, err = (
            path.read_bytes().decode(errors="backslashreplace") if path.exists() else "" for path in self._printed
        )
        return Outcome(os.waitstatus_to_exitcode(status), seconds, self._largest, out, err)

    def wait(self) -> Outcome:
        """Wait until the process has ended."""
        while (outcome := self.poll()) is None:
            time.sleep(0.005)
        return outcome


def anonymous(pid: int) -> float:
    """Return the resident memory of a process without mapped files, in megabytes.

    A forked process starts with its parent's memory.
    """
    resident, of_files = map(int, Path(f"/proc/{pid}/statm").read_bytes().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
