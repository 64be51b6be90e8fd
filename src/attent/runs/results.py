"""Results of a long command, on standard output or in a file that another process can continue after a kill.

A file is written in chunks as FILE.part, and renamed to FILE when it is complete. After each chunk, FILE.part.json
records how much has been written, and from which lines and settings.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pydantic import BaseModel, Field, ValidationError

from attent import bounded
from attent.errors import ArgumentError, DataError, RunError, first_fault, printable
from attent.runs.durable import PART, check_links, claim, said_clearly, sync, write_text

# Maximum bytes of FILE.part.json.
LARGEST = 2**16
# Seconds between progress reports.
INTERVAL = 10.0


class ResultProgress(BaseModel, extra="forbid", frozen=True):
    """The state of a draft, as recorded in FILE.part.json.

    Args:
        format: the version of this file's layout.
        settings: the SHA-256 of everything other than the lines that the results depend on.
        lines: the number of source lines whose results are in the draft.
        source: the SHA-256 of these lines.
        size: the size of their results in bytes.
        is_complete: True if every line had a usable result.
    """

    format: int = Field(default=1, ge=1, le=1)
    settings: str = Field(max_length=64)
    lines: int = Field(default=0, ge=0)
    source: str = Field(default=hashlib.sha256().hexdigest(), max_length=64)
    size: int = Field(default=0, ge=0)
    is_complete: bool = True


def is_there(path: Path) -> bool:
    """Return whether a result file exists and is complete."""
    return path.exists() and not path.with_name(f"{path.name}{PART}").exists()


class Results:
    """Results on standard output.

    Attributes:
        is_complete: True if every line of an earlier process had a usable result.
    """

    is_complete = True

    def remaining(self, lines: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Number lines from 0, and omit those whose results are written."""
        return enumerate(lines)

    def write(self, result: str) -> None:
        """Add a result of one or more lines.

        Control characters are escaped, except for the line ends of Windows.
        """
        print(_printable(result))

    def commit(self, lines: Sequence[str], *, is_complete: bool) -> None:
        """Record that the results of more lines have been written.

        Args:
            lines: the lines of the source.
            is_complete: True if all results so far are usable.
        """
        sys.stdout.flush()

    def finish(self) -> None:
        """Record that all results have been written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""


class ResultFile(Results):
    """Results in a file.

    Args:
        path: the path of the file.
        settings: everything other than the lines that the results depend on, as JSON.
        resume: True to continue the draft of an earlier process, if there is one.
        say: shows progress to the user.

    Attributes:
        draft: the path of the file while it is incomplete.

    Raises:
        ArgumentError: the file or its draft exists, or the draft was made with other settings.
        DataError: FILE.part.json is damaged.
        RunError: the file cannot be written, or another process is writing it.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], *, resume: bool, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._path, self.draft, self._say = path, path.with_name(f"{path.name}{PART}"), say
        self._note = self.draft.with_name(f"{self.draft.name}.json")
        self._settings = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self._digest, self._begin, self._reported = hashlib.sha256(), time.monotonic(), time.monotonic()
        check_links(self.draft, self._note)
        self._progress = self._earlier(resume=resume)
        self._first, self.is_complete = self._progress.lines, self._progress.is_complete
        self._file = self._open()

    def remaining(self, lines: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Number lines from 0, and omit those whose results are written.

        Raises:
            ArgumentError: the draft was made from other lines.
        """
        count = 0
        for number, line in enumerate(lines):
            if number == self._first:
                self._check_source(number)
            count = number + 1
            if number >= self._first:
                yield number, line
            else:
                self._digest.update(f"{line}\n".encode())
        if count <= self._first:
            self._check_source(count)

    def write(self, result: str) -> None:
        """Add a result, in the form in which it would be printed."""
        with said_clearly(self.draft):
            self._file.write(f"{_printable(result)}\n".encode())

    def commit(self, lines: Sequence[str], *, is_complete: bool) -> None:
        """Sync the results of more lines to disk, and report progress every ten seconds."""
        for line in lines:
            self._digest.update(f"{line}\n".encode())
        with said_clearly(self.draft):
            self._file.flush()
            sync(self.draft)
            size = self._file.tell()
        total = self._progress.lines + len(lines)
        self._keep(
            ResultProgress(
                settings=self._settings,
                lines=total,
                source=self._digest.hexdigest(),
                size=size,
                is_complete=is_complete,
            )
        )
        if time.monotonic() - self._reported >= INTERVAL:
            self._reported = time.monotonic()
            self._say(
                f"{self._path}: {total:,} lines, {(total - self._first) / (self._reported - self._begin):,.0f} a second"
            )

    def finish(self) -> None:
        """Rename the draft to its final name, and report the number of its lines."""
        with said_clearly(self._path):
            self._file.close()
            sync(self.draft)
            self.draft.replace(self._path)
            self._note.unlink()
            sync(self._path.parent)
        self._say(f"{self._path}: {self._progress.lines:,} lines")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _earlier(self, *, resume: bool) -> ResultProgress:
        """Return the progress of an earlier process, or initial progress if there is no draft."""
        if self._path.exists():
            raise ArgumentError(f"{self._path} already exists: name another file, or remove it")
        if not self.draft.exists():
            # a note without a draft comes from a process that ended before writing, or its draft was removed
            self._note.unlink(missing_ok=True)
            return ResultProgress(settings=self._settings)
        if not resume:
            raise ArgumentError(f"{self.draft} is from an unfinished command: --resume continues it; or remove it")
        try:
            progress = ResultProgress.model_validate(bounded.read_json(self._note, LARGEST))
        except ValidationError as error:
            raise DataError(
                f"{self._note} is damaged: {first_fault(error)}; remove it and the draft to start over"
            ) from error
        except (OSError, DataError) as error:
            raise DataError(f"{self._note} is missing or damaged: remove {self.draft} to start over") from error
        if progress.settings != self._settings:
            raise ArgumentError(
                f"{self.draft} is from another run or from other options: repeat the original command, or remove it"
            )
        return progress

    def _open(self) -> IO[bytes]:
        """Open the draft at the end of its recorded results; truncate those that a killed process had not recorded."""
        with said_clearly(self.draft):
            if not self._note.exists():
                # recorded before the draft exists, so that a draft is never without a note
                self._keep(self._progress)
            file = open(self.draft, "r+b" if self.draft.exists() else "w+b", opener=bounded.regular)  # noqa: SIM115
            try:
                try:
                    claim(file, self.draft)
                except RunError as error:
                    raise RunError(f"{self.draft} is being written by another process") from error
                if file.seek(0, 2) < self._progress.size:
                    raise DataError(f"{self.draft} is shorter than {self._note.name} says: remove both to start over")
                file.truncate(self._progress.size)
                file.seek(self._progress.size)
            except BaseException:
                file.close()
                raise
        return file

    def _keep(self, progress: ResultProgress) -> None:
        write_text(self._note, progress.model_dump_json() + "\n")
        self._progress = progress

    def _check_source(self, count: int) -> None:
        if count < self._first or self._digest.hexdigest() != self._progress.source:
            raise ArgumentError(
                f"{self.draft} was made from other lines: use the same lines, or remove it to start over"
            )


def _printable(text: str) -> str:
    return "\r\n".join(map(printable, text.split("\r\n")))
