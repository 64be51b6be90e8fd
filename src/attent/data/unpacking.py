"""Compressed bytes within bounds: a small file must not unpack to more than memory holds."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO

from attent.errors import DataError

# Text and numbers unpack to a few times their packed size. So many times are read, and so many bytes whatever their packed size.
RATIO, ALLOWED = 100, 2**26
# Bytes of a line. SentencePiece takes fifty times as many to cut one, also to find it too long to be trained on.
LONGEST_LINE = 2**21
BUFFER = 2**18


def largest(packed: int) -> int:
    """The most bytes that a file of so many packed bytes may unpack to."""
    return max(RATIO * packed, ALLOWED)


class Unpacked(io.RawIOBase):
    """What a stream unpacks, as far as the bound.

    Args:
        stream: unpacks; closed with this.
        packed: bytes of the packed file.
        name: what an error calls it.
    """

    def __init__(self, stream: IO[bytes], packed: int, name: Path | str) -> None:
        self._stream, self._most, self._name, self._count = stream, largest(packed), name, 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read some bytes; errors as of the stream, and DataError: it unpacks to more than the bound."""
        some = self._stream.read(len(buffer))
        buffer[: len(some)] = some
        self._count += len(some)
        if self._count > self._most:
            raise DataError(f"{self._name} unpacks to more than {self._most:,} bytes, which text and numbers of its size never do")
        return len(some)

    def close(self) -> None:
        """Close the stream too."""
        self._stream.close()
        super().close()


def unpacked(stream: IO[bytes], packed: int, name: Path | str) -> io.BufferedReader:
    """What a stream unpacks, to be read; arguments as for `Unpacked`."""
    return io.BufferedReader(Unpacked(stream, packed, name), BUFFER)


def open_gzip(path: Path | str) -> io.BufferedReader:
    """What a gzipped file unpacks to.

    Raises:
        OSError: the system refuses it; errors of reading as for `Unpacked`.
    """
    # a pipe has no size
    return unpacked(gzip.open(path), Path(path).stat().st_size or sys.maxsize, path)  # pyright: ignore[reportArgumentType]


def lines(stream: IO[bytes], name: Path | str) -> Iterator[bytes]:
    """The lines of a stream, each with its line feed.

    Raises:
        DataError: one has more than 16 MiB.
    """
    for number in count(1):
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise DataError(f"{name}, line {number}: has more than {LONGEST_LINE:,} bytes")
        yield line
