"""A line of text with tags in it, within limits that hold whatever wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from attent.data.units import UNIT, Span
from attent.errors import DataError

# Elements within elements of a line, and elements of a line in all.
MAX_DEPTH, MAX_ELEMENTS = 50, 2_000
# Characters of a line with elements: each is linked, which takes a hundred bytes of memory.
MAX_CHARACTERS = 100_000
# Texts and elements after which a line is cut in two: what a list of links without a block's tag between them comes to.
MAX_CHILDREN = 256
# Words and signs of a document in lines with elements, and once more in each element: to place one takes some microseconds.
MAX_PLACED = 300_000
# As how many of these a line counts, and an element.
LINE_SIZE, ELEMENT_SIZE = 25, 5
# A letter or a digit, as str.isalnum has it.
ALPHANUMERIC = re.compile(r"[^\W_]")


class AlignedText(NamedTuple):
    """A translation, and which characters of it belong to which of the source.

    Args:
        text: the translation.
        links: spans of the source and of the translation.
    """

    text: str
    links: Sequence[tuple[Span, Span]]


@dataclass(slots=True)
class Element:
    """A piece of a line.

    Args:
        opening: the tag before its content; of what is not translated, all of it.
        closing: the tag after its content; empty without one.
        children: texts and elements, in order.
        spaces: of an element without content, whether white space stood before and after it.
        is_tight: of an element without content, whether it stood between words without any.
        can_vanish: whether its tags are left out where its words have no counterpart.
        removed: of an element without content, the white space that the text after it began with and does no more.
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
        """The text in it, without tags."""
        return "".join(_texts(self))

    @property
    def elements(self) -> list[Element]:
        """The elements in it, in order."""
        return [child for child in self.children if isinstance(child, Element)]


def _texts(element: Element) -> Iterator[str]:
    """Yield the texts in an element."""
    for child in element.children:
        if isinstance(child, str):
            yield child
        else:
            yield from _texts(child)


def has_words(text: str) -> bool:
    """Return whether there is anything to translate: a letter or a digit."""
    return ALPHANUMERIC.search(text) is not None


def cut_line(line: Element) -> list[Element]:
    """Cut a line that is finished into lines of a size to be aligned, and note the spaces in each.

    Raises:
        DataError: it has too many elements, they are nested too deep, or the text around them is too long.
    """
    pieces = [Element(children=line.children[begin : begin + MAX_CHILDREN]) for begin in range(0, len(line.children), MAX_CHILDREN)]
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
    """Check that the tags of a document's lines can be placed within moments.

    Raises:
        DataError: too many words are in lines with tags, or in tags within tags.
    """

    def size(element: Element) -> tuple[int, int]:
        """Return the units in an element, and what it takes to place it and all within it."""
        count, placed = 0, ELEMENT_SIZE
        for child in element.children:
            inner, inner_placed = (sum(1 for _ in UNIT.finditer(child)), 0) if isinstance(child, str) else size(child)
            count, placed = count + inner, placed + inner_placed
        return count, count + placed

    total = 0
    for line in lines:
        total += LINE_SIZE + size(line)[1] if line.elements else 0
        if total > MAX_PLACED:
            raise DataError(f"a document may have at most {MAX_PLACED:,} words, signs and tags in lines with tags: cut it into several")


def _note_spaces(line: Element) -> None:
    """Note the white space around each element without content, and leave one space to the text around it, which parts its words."""
    leaves = [*_leaves(line)]
    for number, (parent, index) in enumerate(leaves):
        point = parent.children[index]
        if isinstance(point, str):
            continue
        before, after = (_neighbor(leaves, number, step) for step in (-1, 1))
        # a text that is empty by now was the space between two of them
        has_before = before is not None and (str(before[0].children[before[1]]) or " ")[-1].isspace()
        following = "" if after is None else str(after[0].children[after[1]])
        has_after = following[:1].isspace()
        # one that begins a line may come to stand within it
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
    """Return the text directly before or after a leaf; None if something else stands there."""
    number += step
    if not 0 <= number < len(leaves):
        return None
    parent, index = leaves[number]
    return (parent, index) if isinstance(parent.children[index], str) else None
