"""A line before its translation: its words, the tags between them, and the white space there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from attent.data.units import units
from attent.markup.inline import Element

OPENING, CLOSING, POINT = range(3)
# The text of a gap between words, and the elements and kinds of the tags in it.
Gap = tuple[str, frozenset[tuple[int, int]]]


class Mark(NamedTuple):
    """A tag in a gap between two words.

    Args:
        element: the tag's.
        kind: OPENING, CLOSING, or POINT for an element without content.
    """

    element: Element
    kind: int

    @property
    def text(self) -> str:
        """The characters of the tag."""
        return (self.element.opening, self.element.closing, self.element.opening + self.element.closing)[self.kind]


class SourceLine:
    """A line before its translation.

    Its words and signs are cut at the tags within them: each piece is within an element or outside.

    Args:
        line: the line.
    """

    def __init__(self, line: Element) -> None:
        # tags, their positions in the text, and where a text that follows was changed by a point before it, that point
        self._marks: list[tuple[int, Mark]] = []
        self._changes: dict[int, Element] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._texts: list[str] = []
        self._innermost: list[tuple[int, int]] = []
        # elements around others that have text
        self._outer: set[int] = set()
        self._point: Element | None = None
        self._size = 0
        self._read(line)
        self.text = "".join(self._texts)
        tags = sorted({position for position, _ in self._marks})
        # the pieces of each word with tags in it, by the first one
        self.cut: dict[int, range] = {}
        self.begins: list[int] = []
        self.ends: list[int] = []
        for unit in units(self.text):
            inner = tags[bisect_right(tags, unit.begin) : bisect_left(tags, unit.end)]
            if inner:
                self.cut[len(self.begins)] = range(len(self.begins), len(self.begins) + len(inner) + 1)
            self.begins += unit.begin, *inner
            self.ends += *inner, unit.end
        # of each piece, whether it is within an element that has no further one with text
        self.is_innermost = bytearray(len(self.begins))
        for begin, end in self._innermost:
            pieces = range(*(bisect_left(self.begins, position) for position in (begin, end)))
            self.is_innermost[pieces.start : pieces.stop] = b"\1" * len(pieces)
        self.gaps = self._gaps()

    def pieces(self, element: Element) -> range:
        """Return the pieces within an element."""
        begin, end = self._spans[id(element)]
        return range(bisect_left(self.begins, begin), bisect_left(self.begins, end))

    def begin(self, element: Element) -> int:
        """Return where an element begins in the text."""
        return self._spans[id(element)][0]

    def is_outer(self, element: Element) -> bool:
        """Return whether an element is around others that do not have all of its text."""
        return id(element) in self._outer

    def share(self, pieces: set[int], own: range) -> float:
        """Return how much of some pieces is within a range of them, 0 to 1."""
        if len(pieces) == 1:
            return float(next(iter(pieces)) in own)
        sizes = [(self.ends[piece] - self.begins[piece], piece in own) for piece in pieces]
        return sum(size for size, is_own in sizes if is_own) / sum(size for size, _ in sizes)

    def has_word(self, pieces: range, word: str) -> bool:
        """Return whether pieces that follow each other are this word."""
        begin, end = self.begins[pieces.start], self.ends[pieces.stop - 1]
        return end - begin == len(word) and self.text.startswith(word, begin)

    def _read(self, element: Element) -> int:
        """Read what is in an element, and return how many characters of it are within innermost ones."""
        covered = 0
        for child in element.children:
            if isinstance(child, str):
                if self._point is not None:
                    self._changes[len(self._marks) - 1], self._point = self._point, None
                self._texts.append(child)
                self._size += len(child)
                continue
            begin = self._size
            if not child.children:
                self._point = child
                self._marks.append((begin, Mark(child, POINT)))
                self._spans[id(child)] = begin, begin
                continue
            self._marks.append((begin, Mark(child, OPENING)))
            inner = self._read(child)
            end = self._size
            self._marks.append((end, Mark(child, CLOSING)))
            self._spans[id(child)] = begin, end
            if not inner and end > begin:
                self._innermost.append((begin, end))
                inner = end - begin
            elif inner < end - begin:
                self._outer.add(id(child))
            covered += inner
        return covered

    def _gaps(self) -> dict[Gap, list[str | Mark]]:
        """Return each gap between words that has tags, as it was: white space and tags."""
        gaps: dict[Gap, list[str | Mark]] = {}
        for number, indices in groupby(range(len(self._marks)), lambda index: bisect_right(self.ends, self._marks[index][0])):
            begin = position = self.ends[number - 1] if number else 0
            end = self.begins[number] if number < len(self.begins) else len(self.text)
            pieces, point = list[str | Mark](), None
            for index in indices:
                tag_position, mark = self._marks[index]
                pieces += _unchanged(self.text[position:tag_position], point), mark
                position, point = tag_position, self._changes.get(index)
            pieces.append(_unchanged(self.text[position:end], point))
            gaps[gap_key(self.text[begin:end], (piece for piece in pieces if isinstance(piece, Mark)))] = pieces
        return gaps


def _unchanged(text: str, point: Element | None) -> str:
    """Return white space after a point as it was before the spaces around it were noted."""
    return text if point is None else text[1:] if point.is_tight else point.removed + text


def gap_key(text: str, marks: Iterable[Mark]) -> Gap:
    """Return what a gap between words is known by: its text, and the tags in it."""
    return text, frozenset((id(mark.element), mark.kind) for mark in marks)
