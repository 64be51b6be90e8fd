"""What a file's vectors are gathered in: memory for one copy of those that are kept, whatever their number turns out to be."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.data.word_vectors.report import AGAIN, NOT_FINITE, NOT_UTF8, VectorsReport

# Bytes of vectors in one piece: pieces so large go back to the system when they are let go.
PIECE = 2**25


class Block(NamedTuple):
    """Some entries of a file, one behind the other.

    Args:
        places: their lines, or where there are none their numbers, from 1.
        words: as the file writes them.
        vectors: (N, D), float32.
    """

    places: list[int]
    words: list[bytes]
    vectors: np.ndarray


class Gathered:
    """Words and vectors that have been read so far: of a word's vectors the first.

    Args:
        width: the numbers D of a vector.
        report: takes up what was done with the entries.
        wanted: the words to keep; all of them unless given.
    """

    def __init__(self, width: int, report: VectorsReport, wanted: Collection[str] | None = None) -> None:
        self.rows: dict[str, int] = {}
        self._width, self._report, self._wanted = width, report, wanted
        self._pieces: list[np.ndarray] = []
        self._size = max(PIECE // (4 * width), 1)

    def add(self, block: Block) -> None:
        """Take up some entries."""
        kept = []
        damaged = set(np.flatnonzero(~np.isfinite(block.vectors).all(1)).tolist())
        for entry, (place, name) in enumerate(zip(block.places, block.words, strict=True)):
            try:
                word, sound = name.decode(), True
            except UnicodeDecodeError:
                word, sound = name.decode(errors="replace"), False
            if self._wanted is not None and word not in self._wanted:
                self._report.unwanted += 1
            elif entry in damaged:
                self._report.drop(NOT_FINITE, place)
            elif word in self.rows:
                self._report.drop(AGAIN, place)
            else:
                self.rows[word] = len(self.rows)
                kept.append(entry)
                if not sound:
                    self._report.note(NOT_UTF8, place)
        self._put(block.vectors[kept])

    def _put(self, vectors: np.ndarray) -> None:
        """Lay vectors behind those that are there; the last word of `rows` is the last of them."""
        row = len(self.rows) - len(vectors)
        while len(vectors):
            piece, first = divmod(row, self._size)
            if piece == len(self._pieces):
                self._pieces.append(np.empty((self._size, self._width), np.float32))
            some = vectors[: self._size - first]
            self._pieces[piece][first : first + len(some)] = some
            row, vectors = row + len(some), vectors[len(some) :]

    def vectors(self) -> Tensor:
        """All the vectors, (N, D); each piece is let go as soon as it has been copied, so that there are never two of everything."""
        whole = np.empty((len(self.rows), self._width), np.float32)
        self._pieces.reverse()
        for row in range(0, len(whole), self._size):
            some = whole[row : row + self._size]
            some[:] = self._pieces.pop()[: len(some)]
        return torch.from_numpy(whole)
