"""Lines of text with tags, within limits: words, the tags between them, and the white space around the tags."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from attent.errors import DataError
from attent.text.units import UNIT, Span, units

# Maximum nesting depth and number of elements in a line.
MAX_DEPTH, MAX_ELEMENTS = 50, 2_000
# Maximum characters of a line with elements: the link of each takes a hundred bytes of memory.
MAX_CHARACTERS = 100_000
# The number of texts and elements after which a line is split, such as a list of links without block tags between them.
MAX_CHILDREN = 256
# Maximum words and signs in a document's lines with elements, counted again for each element around them: placing one
# takes some microseconds.
MAX_PLACED = 300_000
# The number of words that a line and an element count as.
LINE_SIZE, ELEMENT_SIZE = 25, 5
OPENING, CLOSING, POINT = range(3)
# The text of a gap between words, and the elements and kinds of the tags in it.
Gap = tuple[str, frozenset[tuple[int, int]]]
# A letter or a digit, as in str.isalnum.
ALPHANUMERIC = re.compile(r"[^\W_]")
# {name}, {{name}}, ${name}, %s, %(name)s, %1$s and :name: in messages; URLs; e-mail addresses.
PLACEHOLDER = re.compile(
    r"\$?\{\{?[\w.:!%$ -]{0,64}\}?\}"
    r"|%(?:\(\w{1,64}\))?(?:\d{1,3}\$)?[-+#0]{0,4}\d{0,4}(?:\.\d{1,3})?[sdfgxi@](?!\w)"
    r"|(?:https?|ftp)://[^\s<>\"']{1,2000}[^\s<>\"'.,;:!?)\]]"
    r"|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}"
)
# Each placeholder contains one of these; most texts contain none.
PLACEHOLDER_MARK = re.compile(r"[{%@]|://")


class AlignedText(NamedTuple):
    """A translation, and its links to the characters of the source.

    Args:
        text: the translation.
        links: pairs of linked spans, one of the source and one of the translation.
    """

    text: str
    links: Sequence[tuple[Span, Span]]


def untranslated(text: str) -> AlignedText:
    """Return a text as its own translation, with each unit linked to itself."""
    return AlignedText(text, [(span, span) for span in units(text)])


@dataclass(slots=True)
class Element:
    """A piece of a line.

    Args:
        opening: the tag before its content; for an untranslated element, the whole element.
        closing: the tag after its content, if any.
        children: texts and elements, in order.
        spaces: for an element without content, whether white space precedes it, and whether it follows.
        is_tight: for an element without content, True if it is between words without white space.
        can_vanish: True if its tags are dropped when its words have no counterpart.
        removed: for an element without content, the white space removed from the text after it.
    """

    opening: str = ""
    closing: str = ""
    children: list[Element | str] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)
    is_tight: bool = False
    can_vanish: bool = False
    removed: str = ""

    @property
    def text(self) -> str:
        """The text in the element, without tags."""
        return "".join(_texts(self))

    @property
    def elements(self) -> list[Element]:
        """The child elements, in order."""
        return [child for child in self.children if isinstance(child, Element)]


def _texts(element: Element) -> Iterator[str]:
    """Yield the texts in an element."""
    for child in element.children:
        if isinstance(child, str):
            yield child
        else:
            yield from _texts(child)


def has_words(text: str) -> bool:
    """Return whether a text contains anything to translate: a letter or a digit."""
    return ALPHANUMERIC.search(text) is not None


def cut_placeholders(text: str, escape: Callable[[str], str] = str) -> list[Element | str]:
    """Split a text into plain text and its placeholders, which become elements without text.

    Args:
        text: the text to translate.
        escape: escapes a placeholder.
    """
    if PLACEHOLDER_MARK.search(text) is None:
        return [text] if text else []
    parts: list[Element | str] = []
    position = 0
    for match in PLACEHOLDER.finditer(text):
        parts += [text[position : match.start()], Element(escape(match[0]))]
        position = match.end()
    return [part for part in (*parts, text[position:]) if part]


def cut_line(line: Element) -> list[Element]:
    """Split a complete line into lines short enough to align, and record the spaces in each.

    Raises:
        DataError: the line has too many elements, they are nested too deeply, or the text is too long.
    """
    pieces = [
        Element(children=line.children[begin : begin + MAX_CHILDREN])
        for begin in range(0, len(line.children), MAX_CHILDREN)
    ]
    for piece in pieces or [line]:
        level, count, depth = piece.elements, 0, 0
        while level and depth < MAX_DEPTH:
            count, depth = count + len(level), depth + 1
            level = [inner for element in level for inner in element.elements]
        if level or count > MAX_ELEMENTS:
            raise DataError(f"a line may have at most {MAX_ELEMENTS:,} tags, nested at most {MAX_DEPTH} deep")
        if count and sum(map(len, _texts(piece))) > MAX_CHARACTERS:
            raise DataError(f"a line with tags may have at most {MAX_CHARACTERS:,} characters")
        if count:
            _note_spaces(piece)
    return pieces or [line]


def check_size(lines: Sequence[Element]) -> None:
    """Check that the tags of a document's lines can be placed quickly.

    Raises:
        DataError: lines with tags, or nested tags, contain too many words.
    """

    def size(element: Element) -> tuple[int, int]:
        """Return the number of units in an element, and the cost of placing it and its content."""
        count, placed = 0, ELEMENT_SIZE
        for child in element.children:
            inner, inner_placed = (sum(1 for _ in UNIT.finditer(child)), 0) if isinstance(child, str) else size(child)
            count, placed = count + inner, placed + inner_placed
        return count, count + placed

    total = 0
    for line in lines:
        total += LINE_SIZE + size(line)[1] if line.elements else 0
        if total > MAX_PLACED:
            raise DataError(
                f"a document may have at most {MAX_PLACED:,} words, signs and tags in lines with tags: split it "
                "into several"
            )


def _note_spaces(line: Element) -> None:
    """Record the white space around each element without content, and leave one space to separate the words."""
    leaves = [*_leaves(line)]
    for number, (parent, index) in enumerate(leaves):
        point = parent.children[index]
        if isinstance(point, str):
            continue
        before, after = (_neighbor(leaves, number, step) for step in (-1, 1))
        # a text that is now empty was the space between two elements
        has_before = before is not None and (str(before[0].children[before[1]]) or " ")[-1].isspace()
        following = "" if after is None else str(after[0].children[after[1]])
        has_after = following[:1].isspace()
        # an element at the beginning of a line may be moved into it
        has_before |= number == 0 and has_after
        point.spaces = has_before, has_after
        if has_before and has_after and after is not None:
            point.removed = following[0]
            after[0].children[after[1]] = following[1:]
        elif before is not None and after is not None and not (has_before or has_after):
            point.is_tight = True
            after[0].children[after[1]] = f" {following}"


def _leaves(element: Element) -> Iterator[tuple[Element, int]]:
    """Yield the parent and the index of each text, and of each element without content, in order."""
    for index, child in enumerate(element.children):
        if isinstance(child, Element) and child.children:
            yield from _leaves(child)
        else:
            yield element, index


def _neighbor(leaves: Sequence[tuple[Element, int]], number: int, step: int) -> tuple[Element, int] | None:
    """Return the text directly before or after a leaf, if there is one."""
    number += step
    if not 0 <= number < len(leaves):
        return None
    parent, index = leaves[number]
    return (parent, index) if isinstance(parent.children[index], str) else None


class Mark(NamedTuple):
    """A tag in a gap between two words.

    Args:
        element: the element that the tag belongs to.
        kind: OPENING, CLOSING, or POINT for an element without content.
    """

    element: Element
    kind: int

    @property
    def text(self) -> str:
        """The characters of the tag."""
        return (self.element.opening, self.element.closing, self.element.opening + self.element.closing)[self.kind]


class SourceLine:
    """A line to translate.

    Words and signs are split at the tags within them, so that each piece is either inside or outside an element.

    Args:
        line: the line, with its tags.
    """

    def __init__(self, line: Element) -> None:
        # tags with their positions in the text; points that changed the text after them, by the index of their tags
        self._marks: list[tuple[int, Mark]] = []
        self._changes: dict[int, Element] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._texts: list[str] = []
        self._innermost: list[tuple[int, int]] = []
        # elements that contain others with text
        self._outer: set[int] = set()
        self._point: Element | None = None
        self._size = 0
        self._read(line)
        self.text = "".join(self._texts)
        tags = sorted({position for position, _ in self._marks})
        # the pieces of each word that contains tags, by the first piece
        self.cut: dict[int, range] = {}
        self.begins: list[int] = []
        self.ends: list[int] = []
        for unit in units(self.text):
            inner = tags[bisect_right(tags, unit.begin) : bisect_left(tags, unit.end)]
            if inner:
                self.cut[len(self.begins)] = range(len(self.begins), len(self.begins) + len(inner) + 1)
            self.begins += unit.begin, *inner
            self.ends += *inner, unit.end
        # whether each piece is in an innermost element with text
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
        """Return the position in the text at which an element begins."""
        return self._spans[id(element)][0]

    def is_outer(self, element: Element) -> bool:
        """Return whether some, but not all, of an element's text belongs to elements within it."""
        return id(element) in self._outer

    def share(self, pieces: set[int], own: range) -> float:
        """Return the share of the characters of some pieces that is within a range, 0 to 1."""
        if len(pieces) == 1:
            return float(next(iter(pieces)) in own)
        sizes = [(self.ends[piece] - self.begins[piece], piece in own) for piece in pieces]
        return sum(size for size, is_own in sizes if is_own) / sum(size for size, _ in sizes)

    def has_word(self, pieces: range, word: str) -> bool:
        """Return whether consecutive pieces form a word."""
        begin, end = self.begins[pieces.start], self.ends[pieces.stop - 1]
        return end - begin == len(word) and self.text.startswith(word, begin)

    def _read(self, element: Element) -> int:
        """Read the content of an element, and return the number of its characters that are in innermost elements."""
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
        """Return the white space and tags of each gap between words that contains tags."""
        gaps: dict[Gap, list[str | Mark]] = {}
        for number, indices in groupby(
            range(len(self._marks)), lambda index: bisect_right(self.ends, self._marks[index][0])
        ):
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
    """Return the original white space after an element without content."""
    return text if point is None else text[1:] if point.is_tight else point.removed + text


def gap_key(text: str, marks: Iterable[Mark]) -> Gap:
    """Return the key of a gap between words: its text and the tags in it."""
    return text, frozenset((id(mark.element), mark.kind) for mark in marks)
