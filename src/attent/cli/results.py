"""Results of a command that goes through lines.

On standard output, or in a file that a command which was killed goes on with. Such a file is written under the name
FILE.part, a chunk at a time, and becomes FILE when it is complete. After each chunk FILE.part.json says how far it
came, and of which lines and settings.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pydantic import BaseModel, Field, ValidationError

from attent import bounded
from attent.cli.output import say
from attent.errors import ArgumentError, DataError, RunError, first_fault, printable
from attent.runs.durable import PART, check_links, claim, said_clearly, sync, write_text

# Bytes that the file of the progress may have.
LARGEST = 2**16
# Seconds between two lines about the progress.
INTERVAL = 10.0


class ResultProgress(BaseModel, extra="forbid", frozen=True):
    """Content of a draft.

    Args:
        format: the version of this file's layout.
        settings: SHA-256 of what the results depend on besides the lines.
        lines: of the source whose results are in the draft.
        source: SHA-256 of these lines.
        size: bytes of their results.
        is_complete: whether all of them had a result that can be used.
    """

    format: int = Field(default=1, ge=1, le=1)
    settings: str = Field(max_length=64)
    lines: int = Field(default=0, ge=0)
    source: str = Field(default=hashlib.sha256().hexdigest(), max_length=64)
    size: int = Field(default=0, ge=0)
    is_complete: bool = True


def is_there(path: Path) -> bool:
    """Return whether a file is complete."""
    return path.exists() and not path.with_name(f"{path.name}{PART}").exists()


class Results:
    """Results on standard output.

    Attributes:
        is_complete: whether the lines of an earlier process all had a result that can be used.
    """

    is_complete = True

    def remaining(self, lines: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Number lines from 0, and leave out those whose results are there."""
        return enumerate(lines)

    def write(self, result: str, *, end: str = "\n") -> None:
        """Add a result, of one line or several.

        What a terminal would act on is escaped, but for the line ends of Windows.
        """
        print(_printable(result), end=end)

    def commit(self, lines: Sequence[str], *, is_complete: bool) -> None:
        """Note that the results of these further lines are written.

        Args:
            lines: of the source.
            is_complete: whether all results until now can be used.
        """
        sys.stdout.flush()

    def finish(self, summary: str | None = None) -> None:
        """Note that all results are written.

        Args:
            summary: what the file holds; the number of its lines unless given.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class ResultFile(Results):
    """Results in a file, with how far it came on standard error.

    Args:
        path: of the file.
        settings: what the results depend on besides the lines, as JSON has it.
        resume: whether to go on with the draft of an earlier process, if there is one.

    Raises:
        ArgumentError: the file or its draft exists, or the draft is of other settings.
        DataError: what stands beside the draft is damaged.
        RunError: it cannot be written, or another process writes it.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self._path, self._draft = path, path.with_name(f"{path.name}{PART}")
        self._note = self._draft.with_name(f"{self._draft.name}.json")
        self._settings = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self._digest, self._begin, self._reported = hashlib.sha256(), time.monotonic(), time.monotonic()
        check_links(self._draft, self._note)
        self._progress = self._earlier(resume=resume)
        self._first, self.is_complete = self._progress.lines, self._progress.is_complete
        self._file = self._open()

    def remaining(self, lines: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Number lines from 0, and leave out those whose results are there.

        Raises:
            ArgumentError: these are other lines than those that the draft was made from.
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

    def write(self, result: str, *, end: str = "\n") -> None:
        """Add a result, as standard output would have it."""
        with said_clearly(self._draft):
            self._file.write(f"{_printable(result)}{end}".encode())

    def write_bytes(self, content: bytes) -> None:
        """Add a result as it is."""
        with said_clearly(self._draft):
            self._file.write(content)

    def commit(self, lines: Sequence[str], *, is_complete: bool) -> None:
        """Make the results of these further lines last, and say how far the file came, every ten seconds."""
        for line in lines:
            self._digest.update(f"{line}\n".encode())
        with said_clearly(self._draft):
            self._file.flush()
            sync(self._draft)
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
            say(
                f"{self._path}: {total:,} lines, {(total - self._first) / (self._reported - self._begin):,.0f} a second"
            )

    def finish(self, summary: str | None = None) -> None:
        """Give the file its name, and say what it holds."""
        with said_clearly(self._path):
            self._file.close()
            sync(self._draft)
            self._draft.replace(self._path)
            self._note.unlink()
            sync(self._path.parent)
        say(f"{self._path}: {summary or f'{self._progress.lines:,} lines'}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _earlier(self, *, resume: bool) -> ResultProgress:
        """Return what an earlier process noted; the beginning if there was none."""
        if self._path.exists():
            raise ArgumentError(f"{self._path} is there already: name another file, or remove it")
        if not self._draft.exists():
            # a note without a draft is of a process that ended before it began, or whose draft was removed
            self._note.unlink(missing_ok=True)
            return ResultProgress(settings=self._settings)
        if not resume:
            raise ArgumentError(
                f"{self._draft} is of a command that did not end: --resume goes on with it; or remove it"
            )
        try:
            progress = ResultProgress.model_validate(bounded.read_json(self._note, LARGEST))
        except ValidationError as error:
            raise DataError(
                f"{self._note} is damaged: {first_fault(error)}; remove it and the draft to begin again"
            ) from error
        except (OSError, DataError) as error:
            raise DataError(f"{self._note} is missing or damaged: remove {self._draft} to begin again") from error
        if progress.settings != self._settings:
            raise ArgumentError(
                f"{self._draft} is of another run or of other options: repeat the command as it was, or remove it"
            )
        return progress

    def _open(self) -> IO[bytes]:
        """Open the draft behind the results that are noted: later ones of a process that was killed are cut off."""
        with said_clearly(self._draft):
            if not self._note.exists():
                # noted before the draft is there, so that a draft is never without a note
                self._keep(self._progress)
            file = open(self._draft, "r+b" if self._draft.exists() else "w+b", opener=bounded.regular)  # noqa: SIM115
            try:
                try:
                    claim(file, self._draft)
                except RunError as error:
                    raise RunError(f"{self._draft} is being written by another process") from error
                if file.seek(0, 2) < self._progress.size:
                    raise DataError(f"{self._draft} is shorter than {self._note.name} says: remove both to begin again")
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
            raise ArgumentError(f"{self._draft} was made from other lines: give those, or remove it to begin again")


def _printable(text: str) -> str:
    return "\r\n".join(map(printable, text.split("\r\n")))
