"""Texts stored on disk in columns, so that a corpus can be larger than memory: lines have one column, pairs have two.

Once encoded, they are sequences that batches read on demand.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from attent.errors import ArgumentError, DataError
from attent.text.batches import KEY_MULTIPLE, Bitext, Sequences
from attent.text.readers import OVER_LONG, Fields
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import BOS, EOS, Tokenizer

# Number of rows that iteration reads at a time.
BLOCK_SIZE = 1024

Row = TypeVar("Row")
# Number of sequences from one stored offset to the next.
OFFSET_INTERVAL = 256
SIDES = "source", "target"
ROWS = "rows.npy"
# Types of tokens in a file: for a vocabulary of at most 2¹⁶ ids, and for a larger one.
SMALL, LARGE = np.uint16, np.int32


class TemporaryFolder:
    """A temporary folder that is removed with this object, or when Python ends.

    Args:
        within: the folder to create it in; by default the system's folder for temporary files. On some systems that
            folder is in memory: for a corpus larger than memory, name a folder on a disk.
    """

    def __init__(self, within: Path | str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="attent-", dir=within))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class DiskTexts(Sequence[Row], Generic[Row]):
    """Rows of texts in a file, read on demand; see `write_texts`.

    Args:
        folder: the folder of the file; it exists as long as these texts do.
        name: the name of the file.
        starts: the offset of each text in the file, row by row, and the end of the last one, (columns · N + 1,).
        numbers: the line number of each row, from 1, (N,).
        make_row: makes a row from its texts, such as `Pair`, or `str` for one column.
        rows: the selected rows, (M,); all rows by default.
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
        """Select rows in the given order, without copying texts."""
        return DiskTexts(self._folder, self._name, self._starts, self._numbers, self._make_row, self._rows[rows])

    @property
    def line_numbers(self) -> np.ndarray:
        """The line number of each row, from 1, (M,)."""
        return self._numbers[self._rows]

    def line_number(self, row: int) -> int:
        """Return the line number of a row, from 1."""
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
    """Write rows of texts to a file one by one.

    Args:
        numbered: the line number and the texts of each row.
        folder: the folder of the file.
        name: the name of the file.
        make_row: makes a row from its texts when it is read back.

    Raises:
        ArgumentError: the file already exists.
    """
    path = folder.path / name
    if path.exists():
        raise ArgumentError(f"{path} already exists")
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
    """Write pairs to a file one by one, without alignments; arguments and errors as for `write_texts`."""
    return write_texts(((number, (pair.source, pair.target)) for number, pair in numbered), folder, name, Pair)


class DiskSequences(Sequences):
    """Token sequences whose tokens are read from a file on demand; see `write_index`.

    The file is read rather than memory-mapped, since every page touched would count as memory in use.

    Args:
        folder: the folder of the files.
        name: the prefix of the file names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.lengths = np.load(folder / f"{name}.lengths.npy")
        # other offsets are computed from these by adding lengths
        sums = (
            np.add.reduceat(self.lengths, np.arange(0, len(self.lengths), OFFSET_INTERVAL), dtype=np.int64)
            if len(self.lengths)
            else []
        )
        self._offsets = np.concatenate(([0], np.cumsum(sums, dtype=np.int64)))
        self._file = (folder / f"{name}.tokens").open("rb", buffering=0)
        self._finalizer = weakref.finalize(self, self._file.close)
        size = os.fstat(self._file.fileno()).st_size
        self._dtype = np.dtype(SMALL if size == SMALL().itemsize * self._offsets[-1] else LARGE)

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """Return the tokens of these sequences, concatenated."""
        parts = [np.frombuffer(self._read(int(row)), self._dtype) for row in rows]
        return np.concatenate(parts) if parts else np.zeros(0, self._dtype)

    def _read(self, row: int) -> bytes:
        block = row // OFFSET_INTERVAL
        offset = int(self._offsets[block]) + int(self.lengths[block * OFFSET_INTERVAL : row].sum(dtype=np.int64))
        self._file.seek(offset * self._dtype.itemsize)
        return self._file.read(int(self.lengths[row]) * self._dtype.itemsize)


class DiskBitext(Bitext):
    """Encoded pairs on disk, batched in the same way as pairs in memory.

    Args:
        folder: the folder of the index.
        length_multiple: the multiple that lengths are padded to.

    Attributes:
        rows: the rows of the indexed pairs, without those that were too long, (N,).
    """

    def __init__(self, folder: Path | str, *, length_multiple: int = KEY_MULTIPLE) -> None:
        self.source, self.target = (DiskSequences(Path(folder), side) for side in SIDES)
        self.length_multiple = length_multiple
        self.rows = np.load(Path(folder) / ROWS)


def index(
    pairs: DiskTexts[Pair],
    source: Tokenizer,
    target: Tokenizer,
    folder: Path | str,
    *,
    maximum_length: int,
    report: ReadReport | None = None,
    length_multiple: int = KEY_MULTIPLE,
) -> DiskBitext:
    """Encode pairs and write them to disk, except those that are too long.

    Args:
        pairs: the pairs to encode.
        source: the tokenizer of the sources.
        target: the tokenizer of the targets.
        folder: the folder of the index; created if it does not exist.
        maximum_length: the maximum number of tokens on either side, without BOS and EOS.
        report: records pairs that are too long.
        length_multiple: the multiple that lengths are padded to.

    Raises:
        DataError: no pair is short enough.
    """
    write_index(
        pairs, dict(zip(SIDES, (source, target), strict=True)), folder, maximum_length=maximum_length, report=report
    )
    return DiskBitext(folder, length_multiple=length_multiple)


def write_index(
    texts: DiskTexts[Any],
    tokenizers: Mapping[str, Tokenizer],
    folder: Path | str,
    *,
    maximum_length: int,
    report: ReadReport | None = None,
    row_name: str = "pair",
) -> None:
    """Encode rows of texts and write their sequences to disk, except those that are too long.

    Args:
        texts: the texts to encode.
        tokenizers: the tokenizer of each column, by the name of its sequences; those of "target" get BOS and EOS.
        folder: the folder of the index; created if it does not exist.
        maximum_length: the maximum number of tokens of each text, without BOS and EOS.
        report: records rows that are too long.
        row_name: the word for a row in messages.

    Raises:
        DataError: no row is short enough.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, lengths = array("q"), {name: array("i") for name in tokenizers}
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.tokens").open("wb")) for name in tokenizers}
        for row, columns in enumerate(texts.fields()):
            encoded = [tokenizer.encode(text) for tokenizer, text in zip(tokenizers.values(), columns, strict=True)]
            if max(map(len, encoded)) > maximum_length:
                if report is not None:
                    report.drop(OVER_LONG, texts.line_number(row))
                continue
            rows.append(row)
            for (name, tokenizer), tokens in zip(tokenizers.items(), encoded, strict=True):
                tokens = [BOS, *tokens, EOS] if name == "target" else tokens
                lengths[name].append(len(tokens))
                files[name].write(array("H" if tokenizer.size <= 2**16 else "i", tokens))
    if not rows:
        raise DataError(f"all {len(texts):,} {row_name}s are longer than the maximum length of {maximum_length} tokens")
    for name, numbers in lengths.items():
        np.save(folder / f"{name}.lengths.npy", np.asarray(numbers, np.int32))
    np.save(folder / ROWS, np.asarray(rows, np.int32 if len(texts) < 2**31 else np.int64))
