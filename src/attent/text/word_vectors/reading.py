"""Reader of word vectors in every format, plain, gzipped or in a zip archive."""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor

from attent.errors import DataError
from attent.text.readers import limit_unpacking
from attent.text.report import VectorsReport
from attent.text.word_vectors import formats
from attent.text.word_vectors.formats import Block
from attent.text.word_vectors.vectors import WordVectors

# Bytes from which the format is detected.
HEAD = 2**18
PICKLE = "a pickle, as gensim saves its own; save_word2vec_format writes one to be read here"
# First bytes of files that are mistaken for word vectors.
OTHER_FILES = {
    b"\xba\x16\x4f\x2f": "a fastText model; its vectors are in the .vec beside it",
    b"\x80\x02": PICKLE,
    b"\x80\x03": PICKLE,
    b"\x80\x04": PICKLE,
    b"\x80\x05": PICKLE,
}
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
# Files of an archive that an error lists.
LISTED_FILES = 5
# macOS puts files of its own into an archive.
MACOS_FOLDER = "__MACOSX/"
ENCRYPTED = 1
# Bytes of vectors in one allocation: allocations of this size return to the system when they are freed.
CHUNK = 2**25

# Reasons for which a report drops or notes an entry.
NOT_FINITE, REPEATED = "not a finite number (NaN or infinity)", "a word that came before"
NOT_UTF8 = "word that is not UTF-8, its bytes replaced by �"


def read(path: Path | str, words: Iterable[str] | None = None) -> WordVectors:
    """Read word vectors, which may be gzipped or zipped.

    The formats are GloVe's text, the text of word2vec and fastText (.vec), and word2vec's binary format. The content
    decides the format, whatever the name. Memory holds one copy of the vectors that are kept, and little else. The
    first of several vectors of a word is kept; lines that are no word and vector are left out; the report counts both.

    Sources: Mikolov et al. (2013), arXiv 1301.3781; Pennington et al. (2014), "GloVe"; Bojanowski et al. (2017), arXiv
    1607.04606.

    Args:
        path: the file; name a file of a zip archive as `glove.6B.zip/glove.6B.50d.txt`.
        words: keep only the vectors of these words; damage in the lines of others goes undetected.

    Raises:
        DataError: the file cannot be read, is cut off where that can be detected, is of another kind, or holds no word
            vectors.
    """
    report = VectorsReport(str(path))
    vocabulary = None if words is None else frozenset(words)
    parse = formats.binary_blocks if _is_binary(path) else formats.text_blocks
    with open_vectors(path) as stream:
        collector = None
        for block in parse(stream, report, vocabulary):
            collector = collector or VectorCollector(report.width, report, vocabulary)
            collector.add(block)
    collector = collector or VectorCollector(report.width, report, vocabulary)
    report.words = len(collector.rows)
    if vocabulary is None and not collector.rows:
        raise DataError(f"no word vectors: {report.one_line()}")
    return WordVectors(list(collector.rows), collector.vectors(), report)


def width_of(path: Path | str) -> int:
    """Return the number of features of a file's vectors, from its beginning.

    Raises:
        DataError: as `read`, as far as the beginning shows it.
    """
    report = VectorsReport(str(path))
    parse = formats.binary_blocks if _is_binary(path) else formats.text_blocks
    with open_vectors(path) as stream:
        next(parse(stream, report), None)
    return report.width


class VectorCollector:
    """Words and their vectors, collected in memory for one copy whatever their number; a word keeps its first vector.

    Args:
        width: the numbers D of a vector.
        report: records dropped entries.
        vocabulary: the words to keep; all unless given.
    """

    def __init__(self, width: int, report: VectorsReport, vocabulary: Collection[str] | None = None) -> None:
        self.rows: dict[str, int] = {}
        self._width, self._report, self._vocabulary = width, report, vocabulary
        self._chunks: list[np.ndarray] = []
        self._chunk_rows = max(CHUNK // (4 * width), 1)

    def add(self, block: Block) -> None:
        """Add the entries of a block."""
        rows = []
        damaged = set(np.flatnonzero(~np.isfinite(block.vectors).all(1)).tolist())
        for row, (number, name) in enumerate(zip(block.numbers, block.words, strict=True)):
            try:
                word, is_utf8 = name.decode(), True
            except UnicodeDecodeError:
                word, is_utf8 = name.decode(errors="replace"), False
            if self._vocabulary is not None and word not in self._vocabulary:
                self._report.skipped += 1
            elif row in damaged:
                self._report.drop(NOT_FINITE, number)
            elif word in self.rows:
                self._report.drop(REPEATED, number)
            else:
                self.rows[word] = len(self.rows)
                rows.append(row)
                if not is_utf8:
                    self._report.note(NOT_UTF8, number)
        self._append(block.vectors[rows])

    def _append(self, vectors: np.ndarray) -> None:
        """Append the vectors of the last words in `rows`."""
        row = len(self.rows) - len(vectors)
        while len(vectors):
            chunk, begin = divmod(row, self._chunk_rows)
            if chunk == len(self._chunks):
                self._chunks.append(np.empty((self._chunk_rows, self._width), np.float32))
            part = vectors[: self._chunk_rows - begin]
            self._chunks[chunk][begin : begin + len(part)] = part
            row, vectors = row + len(part), vectors[len(part) :]

    def vectors(self) -> Tensor:
        """Return all vectors, (N, D).

        Each chunk is freed as soon as it has been copied, so that there are never two copies of all.
        """
        result = np.empty((len(self.rows), self._width), np.float32)
        self._chunks.reverse()
        for row in range(0, len(result), self._chunk_rows):
            part = result[row : row + self._chunk_rows]
            part[:] = self._chunks.pop()[: len(part)]
        return torch.from_numpy(result)


@contextmanager
def open_vectors(path: Path | str) -> Iterator[IO[bytes]]:
    """Open a file, unpacking gzip and zip, which its first bytes show.

    `glove.6B.zip/glove.6B.50d.txt` names a file of an archive.

    Raises:
        DataError: the file cannot be read, is cut off, or is an archive of several files of which the path names none.
    """
    file, member = _split_member(Path(path))
    try:
        with file.open("rb") as packed:
            magic = packed.read(4)
            packed.seek(0)
            size = os.fstat(packed.fileno()).st_size
            if magic.startswith(ZIP):
                with (
                    ZipFile(packed) as archive,
                    limit_unpacking(archive.open(_member(file, archive, member)), size, path) as stream,
                ):
                    yield stream
            elif member:
                raise DataError(f"{path} cannot be read: {file} is no zip archive")
            elif magic.startswith(GZIP):
                with limit_unpacking(gzip.open(packed), size, path) as stream:  # pyright: ignore[reportArgumentType]
                    yield stream
            else:
                yield packed
    except (EOFError, zlib.error, gzip.BadGzipFile, BadZipFile) as error:
        raise DataError(f"{path} is cut off or damaged: {error}") from error
    except (OSError, NotImplementedError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _split_member(path: Path) -> tuple[Path, str]:
    """Split a path into that of an archive and the name of a file in it."""
    for file in path.parents if not path.exists() else ():
        if file.is_file():
            return file, path.relative_to(file).as_posix()
    return path, ""


def _member(file: Path, archive: ZipFile, member: str) -> str:
    names = [
        info.filename for info in archive.infolist() if not info.is_dir() and not info.filename.startswith(MACOS_FOLDER)
    ]
    if member and member not in names:
        listed = ", ".join([*names[:LISTED_FILES], *["…"] * (len(names) > LISTED_FILES)])
        raise DataError(f"{file} holds no {member}, but {listed}")
    if not member and len(names) != 1:
        raise DataError(
            f"{file} holds {len(names)} files; name one of them, as {file}/{names[0]}" if names else f"{file} is empty"
        )
    name = member or names[0]
    if archive.getinfo(name).flag_bits & ENCRYPTED:
        raise DataError(f"{file} cannot be read: {name} in it is encrypted")
    return name


def _is_binary(path: Path | str) -> bool:
    """Return whether a file is in word2vec's binary format rather than text.

    Raises:
        DataError: it is neither.
    """
    with open_vectors(path) as stream:
        head = stream.read(HEAD)
    for magic, kind in OTHER_FILES.items():
        if head.startswith(magic):
            raise DataError(f"{path} holds no word vectors: it is {kind}")
    lines = head.removeprefix(formats.BYTE_ORDER_MARK).split(b"\n")[: 1 + formats.SAMPLE_LINES]
    header = formats.HEADER.fullmatch(lines[0])
    has_controls = bool(head.translate(None, delete=bytes(range(0x20, 0x100)) + b"\t\n\v\f\r"))
    if header:
        is_text = formats.has_entry(lines[1:], int(header[2])) or formats.infer_shape(lines[1:]) is not None
        return not is_text and (has_controls or not _is_utf8(head))
    if has_controls:
        raise DataError(f"{path} holds no word vectors: it is neither text nor word2vec's binary form")
    return False


def _is_utf8(head: bytes) -> bool:
    """Return whether the beginning of a file is UTF-8, even if it ends within a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
