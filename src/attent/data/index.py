"""Encoded pairs on disk, from which batches are read as they are needed."""

from __future__ import annotations

import itertools
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attent.data.batches import KEY_MULTIPLE, Bitext, Sequences
from attent.data.disk_pairs import StoredPairs
from attent.data.readers import OVER_LONG, ReadReport
from attent.data.tokenizer import BOS, EOS, Tokenizer
from attent.errors import DataError

# Pairs encoded between two writes.
TOGETHER = 4096
# Sequences between two whose place is kept.
APART = 256
SIDES = "source", "target"
ROWS = "rows.npy"


class DiskSequences(Sequences):
    """Token sequences whose tokens lie in a file, and are read when they are asked for; made by `index`.

    The file is read, not mapped into memory, where every page that was ever looked at would count.

    Args:
        folder: where the files are.
        name: what the files' names begin with.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.lengths = np.load(folder / f"{name}.lengths.npy")
        # where every so many sequences begin; the others follow from the lengths between
        sums = np.add.reduceat(self.lengths, np.arange(0, len(self.lengths), APART), dtype=np.int64) if len(self.lengths) else []
        self._begins = np.concatenate(([0], np.cumsum(sums, dtype=np.int64)))
        self._file = (folder / f"{name}.tokens.npy").open("rb", buffering=0)
        self._end = weakref.finalize(self, self._file.close)
        np.lib.format.read_magic(self._file)
        _, _, self._type = np.lib.format.read_array_header_1_0(self._file)
        self._first = self._file.tell()

    def concatenate(self, rows: np.ndarray) -> np.ndarray:
        """The tokens of these sequences, one behind the other."""
        parts = [np.frombuffer(self._read(int(row)), self._type) for row in rows]
        return np.concatenate(parts) if parts else np.zeros(0, self._type)

    def _read(self, row: int) -> bytes:
        known = row // APART
        start = int(self._begins[known]) + int(self.lengths[known * APART : row].sum(dtype=np.int64))
        self._file.seek(self._first + start * self._type.itemsize)
        return self._file.read(int(self.lengths[row]) * self._type.itemsize)


class EncodedBitext(Bitext):
    """Pairs that are encoded already.

    Args:
        source: their sources.
        target: their targets, with BOS and EOS.
        length_multiple: lengths are padded to a multiple of this.
    """

    def __init__(self, source: Sequences, target: Sequences, *, length_multiple: int = KEY_MULTIPLE) -> None:
        self.source, self.target, self.length_multiple = source, target, length_multiple


class DiskBitext(EncodedBitext):
    """Encoded pairs on disk, from which batches are cut as from those in memory.

    Args:
        folder: where `index` wrote them.
        length_multiple: lengths are padded to a multiple of this.

    Attributes:
        rows: which of the pairs that were indexed these are, (N,); those missing were too long.
    """

    def __init__(self, folder: Path | str, *, length_multiple: int = KEY_MULTIPLE) -> None:
        source, target = (DiskSequences(Path(folder), side) for side in SIDES)
        super().__init__(source, target, length_multiple=length_multiple)
        self.rows = np.load(Path(folder) / ROWS)


def index(
    pairs: StoredPairs,
    source: Tokenizer,
    target: Tokenizer,
    folder: Path | str,
    *,
    maximum_length: int,
    report: ReadReport | None = None,
    length_multiple: int = KEY_MULTIPLE,
) -> DiskBitext:
    """Encode pairs and write them to disk, leaving out those that are too long.

    Args:
        pairs: what to encode.
        source: what encodes their sources.
        target: what encodes their targets.
        folder: where the index is to be; it is made if it is not there.
        maximum_length: tokens that either side may have, BOS and EOS not counted.
        report: takes up the pairs that are longer.
        length_multiple: lengths are padded to a multiple of this.

    Raises:
        DataError: every pair is too long.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    writers = [_Writer(folder, side, tokenizer.size) for side, tokenizer in zip(SIDES, (source, target), strict=True)]
    kept = array("q")
    try:
        rows = iter(enumerate(pairs))
        while some := list(itertools.islice(rows, TOGETHER)):
            fitting: list[tuple[list[int], list[int]]] = []
            for row, pair in some:
                encoded = source.encode(pair.source), target.encode(pair.target)
                if max(map(len, encoded)) <= maximum_length:
                    fitting.append(encoded)
                    kept.append(row)
                elif report is not None:
                    report.drop(OVER_LONG, pairs.number(row))
            writers[0].write([tokens for tokens, _ in fitting])
            writers[1].write([[BOS, *tokens, EOS] for _, tokens in fitting])
    finally:
        for writer in writers:
            writer.close()
    if not kept:
        raise DataError(f"every one of the {len(pairs):,} pairs is longer than the maximum length of {maximum_length} tokens")
    np.save(folder / ROWS, np.asarray(kept, np.int32 if len(pairs) < 2**31 else np.int64))
    return DiskBitext(folder, length_multiple=length_multiple)


def index_lines(
    lines: StoredPairs, tokenizer: Tokenizer, folder: Path | str, *, maximum_length: int, report: ReadReport | None = None
) -> np.ndarray:
    """Encode lines, stored as pairs without a target, and write them to disk, leaving out those that are too long.

    Args:
        lines: what to encode.
        tokenizer: what encodes them.
        folder: where the index is to be; it is made if it is not there. Its sequences are called "line".
        maximum_length: tokens that a line may have.
        report: takes up the lines that are longer.

    Returns:
        Which of the lines these are, (N,); those missing were too long.

    Raises:
        DataError: every line is too long.
    """
    folder, kept = Path(folder), array("q")
    folder.mkdir(parents=True, exist_ok=True)
    writer, rows = _Writer(folder, "line", tokenizer.size), iter(enumerate(lines))
    try:
        while some := list(itertools.islice(rows, TOGETHER)):
            fitting: list[list[int]] = []
            for row, pair in some:
                encoded = tokenizer.encode(pair.source)
                if len(encoded) <= maximum_length:
                    fitting.append(encoded)
                    kept.append(row)
                elif report is not None:
                    report.drop(OVER_LONG, lines.number(row))
            writer.write(fitting)
    finally:
        writer.close()
    if not kept:
        raise DataError(f"every one of the {len(lines):,} lines is longer than the maximum length of {maximum_length} tokens")
    np.save(folder / ROWS, np.asarray(kept, np.int32 if len(lines) < 2**31 else np.int64))
    return np.asarray(kept)


def save_bitext(bitext: Bitext, folder: Path | str) -> None:
    """Write pairs that are encoded in memory as `index` writes others, so that another process may open them.

    Args:
        bitext: the pairs.
        folder: where the index is to be; it is made if it is not there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for side, sequences in zip(SIDES, (bitext.source, bitext.target), strict=True):
        np.save(folder / f"{side}.tokens.npy", sequences.tokens.astype(np.int32))
        np.save(folder / f"{side}.lengths.npy", sequences.lengths.astype(np.int32))
    np.save(folder / ROWS, np.arange(len(bitext), dtype=np.int32))


class _Writer:
    """Writes sequences to two .npy files, whose lengths are known only at the end."""

    def __init__(self, folder: Path, name: str, size: int) -> None:
        self._tokens = _Array(folder / f"{name}.tokens.npy", np.uint16 if size <= 2**16 else np.int32)
        self._lengths = _Array(folder / f"{name}.lengths.npy", np.int32)

    def write(self, sequences: Sequence[Sequence[int]]) -> None:
        self._lengths.append([len(sequence) for sequence in sequences])
        self._tokens.append(list(itertools.chain.from_iterable(sequences)))

    def close(self) -> None:
        self._tokens.close()
        self._lengths.close()


class _Array:
    """A .npy file of one axis that grows; its header has room for every length, and is written once more at the end."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self._dtype, self._length = np.dtype(dtype), 0
        self._file = path.open("wb")
        self._head()

    def append(self, values: Sequence[int]) -> None:
        self._length += len(values)
        self._file.write(np.asarray(values, self._dtype).tobytes())

    def close(self) -> None:
        self._file.seek(0)
        self._head()
        self._file.close()

    def _head(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
