"""Texts on disk in columns, so that a corpus may be larger than memory: lines have one column, pairs have two."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from attent.errors import ArgumentError
from attent.text.readers import Fields
from attent.text.text import Pair

# Rows that iteration reads at a time.
BLOCK_SIZE = 1024

Row = TypeVar("Row")


class TemporaryFolder:
    """A temporary folder that is removed with this object, or when Python ends.

    Args:
        within: the folder to make it in; the system's for temporary files unless given. On some systems that one is in
            memory: name a folder on a disk for a corpus larger than memory.
    """

    def __init__(self, within: Path | str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="attent-", dir=within))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class DiskTexts(Sequence[Row], Generic[Row]):
    """Rows of texts in a file, read on demand; see `write_texts`.

    Args:
        folder: of the file; it exists as long as these texts.
        name: of the file.
        starts: where each text begins in the file, row by row, and where the last one ends, (columns · N + 1,).
        numbers: the lines that the rows come from, from 1, (N,).
        make_row: makes a row of its texts, such as `Pair`, or `str` for one column.
        rows: the selected rows, (M,); all unless given.
    """

    def __init__(
        self,
        folder: TemporaryFolder,
        name: str,
        starts: np.ndarray,
        numbers: np.ndarray,
        make_row: Callable[..., Row],
        rows: np.ndarray | None = None,
    ) -> None:
        self._folder, self._name, self._starts, self._numbers, self._make_row = folder, name, starts, numbers, make_row
        self._columns = (len(starts) - 1) // max(len(numbers), 1)
        self._rows = np.arange(len(numbers), dtype=numbers.dtype) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> DiskTexts[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | DiskTexts[Row]:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        return self._make_row(*next(self._read(self._rows[[index]])))

    def __iter__(self) -> Iterator[Row]:
        return itertools.starmap(self._make_row, self.fields())

    def fields(self) -> Iterator[Fields]:
        """Read the texts of each row, column by column."""
        for begin in range(0, len(self), BLOCK_SIZE):
            yield from self._read(self._rows[begin : begin + BLOCK_SIZE])

    def select(self, rows: np.ndarray) -> DiskTexts[Row]:
        """Select rows, in the order given, without copying texts."""
        return DiskTexts(self._folder, self._name, self._starts, self._numbers, self._make_row, self._rows[rows])

    @property
    def line_numbers(self) -> np.ndarray:
        """The lines that the rows come from, from 1, (M,)."""
        return self._numbers[self._rows]

    def line_number(self, row: int) -> int:
        """Return the line that a row comes from, from 1."""
        return int(self._numbers[self._rows[row]])

    def _read(self, rows: np.ndarray) -> Iterator[Fields]:
        with (self._folder.path / self._name).open("rb") as file:
            for row in rows.tolist():
                begin, *ends = self._starts[self._columns * row : self._columns * (row + 1) + 1].tolist()
                file.seek(begin)
                content = file.read(ends[-1] - begin)
                yield tuple(
                    content[start - begin : end - begin].decode() for start, end in itertools.pairwise((begin, *ends))
                )


def write_texts(
    numbered: Iterable[tuple[int, Fields]], folder: TemporaryFolder, name: str, make_row: Callable[..., Row]
) -> DiskTexts[Row]:
    """Write rows of texts to a file as they come.

    Args:
        numbered: the texts of each row, with the number of its line.
        folder: for the file.
        name: of the file.
        make_row: makes a row of its texts when it is read again.

    Raises:
        ArgumentError: the file exists.
    """
    path = folder.path / name
    if path.exists():
        raise ArgumentError(f"{path} is there already")
    starts, numbers = array("q", [0]), array("q")
    with path.open("wb") as file:
        for number, texts in numbered:
            numbers.append(number)
            for text in texts:
                starts.append(starts[-1] + file.write(text.encode()))
    lines: Any = np.frombuffer(numbers, np.int64) if numbers else np.zeros(0, np.int64)
    dtype = np.int32 if lines.max(initial=0) < 2**31 else np.int64
    return DiskTexts(folder, name, np.frombuffer(starts, np.int64), lines.astype(dtype), make_row)


def write_pairs(numbered: Iterable[tuple[int, Pair]], folder: TemporaryFolder, name: str) -> DiskTexts[Pair]:
    """Write pairs to a file as they come, without alignments; arguments and errors as for `write_texts`."""
    return write_texts(((number, (pair.source, pair.target)) for number, pair in numbered), folder, name, Pair)
