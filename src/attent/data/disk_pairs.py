"""Pairs kept on disk, so that a corpus may be larger than memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self, overload

import numpy as np

from attent.data.text import Pair
from attent.errors import ArgumentError

# Pairs read with one call when all are read in order.
TOGETHER = 1024
PARTS = "starts", "numbers", "rows"


class WorkingFolder:
    """A temporary folder that goes when the object goes, or when Python ends.

    Args:
        within: the folder to make it in; the system's for temporary files unless given. On some systems that one is in
            memory: name a folder on a disk for a corpus larger than memory.
    """

    def __init__(self, within: Path | str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="attent-", dir=within))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @classmethod
    def of_another(cls, path: Path | str) -> Self:
        """The folder that another process has made and is to remove."""
        folder = cls.__new__(cls)
        folder.path = Path(path)
        return folder


class StoredPairs(Sequence[Pair]):
    """Pairs in a file, read when they are asked for. Made by `store`; alignments are not kept.

    Args:
        folder: what the file is in, kept as long as the pairs are.
        name: the file's name.
        starts: where each text begins in it, source and target in turn, and where the last one ends, (2 N + 1,).
        numbers: the lines that the pairs come from, (N,).
        rows: which of the pairs these are, (M,); all of them unless given.
    """

    def __init__(self, folder: WorkingFolder, name: str, starts: np.ndarray, numbers: np.ndarray, rows: np.ndarray | None = None) -> None:
        self._folder, self._name, self._starts, self._numbers = folder, name, starts, numbers
        self._rows = np.arange(len(numbers), dtype=numbers.dtype) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> StoredPairs: ...
    def __getitem__(self, index: int | slice) -> Pair | StoredPairs:
        if isinstance(index, slice):
            return self.only(np.arange(len(self))[index])
        return next(self._read(self._rows[[index]]))

    def __iter__(self) -> Iterator[Pair]:
        for first in range(0, len(self), TOGETHER):
            yield from self._read(self._rows[first : first + TOGETHER])

    def only(self, rows: np.ndarray) -> StoredPairs:
        """Some of these pairs, in the order given; nothing is copied."""
        return StoredPairs(self._folder, self._name, self._starts, self._numbers, self._rows[rows])

    @property
    def numbers(self) -> np.ndarray:
        """The lines that the pairs come from, from 1, (M,)."""
        return self._numbers[self._rows]

    def number(self, row: int) -> int:
        """The line that a pair comes from, from 1."""
        return int(self._numbers[self._rows[row]])

    def describe(self) -> None:
        """Write beside the pairs what `opened` needs."""
        for part, numbers in zip(PARTS, (self._starts, self._numbers, self._rows), strict=True):
            np.save(self._folder.path / f"{self._name}.{part}.npy", numbers)

    def _read(self, rows: np.ndarray) -> Iterator[Pair]:
        with (self._folder.path / self._name).open("rb") as file:
            for row in rows.tolist():
                start, middle, end = self._starts[2 * row : 2 * row + 3].tolist()
                file.seek(start)
                text = file.read(end - start)
                yield Pair(text[: middle - start].decode(), text[middle - start :].decode())


def opened(folder: WorkingFolder, name: str) -> StoredPairs:
    """The pairs that a process has stored and described, in another; what describes them is in memory once for both."""
    return StoredPairs(folder, name, *(np.load(folder.path / f"{name}.{part}.npy", mmap_mode="r") for part in PARTS))


def store(numbered: Iterable[tuple[int, Pair]], folder: WorkingFolder, name: str) -> StoredPairs:
    """Write pairs to a file as they come.

    Args:
        numbered: the pairs, each with the number of its line.
        folder: where the file is to be.
        name: the file's name.

    Raises:
        ArgumentError: a file of this name is there already.
    """
    path = folder.path / name
    if path.exists():
        raise ArgumentError(f"{path} is there already")
    starts, numbers = array("q", [0]), array("q")
    with path.open("wb") as file:
        for number, pair in numbered:
            numbers.append(number)
            for text in (pair.source, pair.target):
                starts.append(starts[-1] + file.write(text.encode()))
    lines = np.frombuffer(numbers, np.int64) if numbers else np.zeros(0, np.int64)
    small = np.int32 if lines.max(initial=0) < 2**31 else np.int64
    return StoredPairs(folder, name, np.frombuffer(starts, np.int64), lines.astype(small))
