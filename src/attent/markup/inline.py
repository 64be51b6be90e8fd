"""A line of text with tags in it, and its translation with the same tags: each once, nested as they were.

An element is put around the words of the translation that are linked to its own. They need not be side by side: of all stretches of words
the element takes the one with the most of its own words beyond those of others. An element whose words have no counterpart stays, empty,
where the words before it ended. What is not translated (code, a placeholder, an address) is moved the same way as an empty tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from attent.evaluation.translation_links import Span, units


class AlignedText(NamedTuple):
    """A translation, and which characters of it belong to which of the source.

    Args:
        text: the translation.
        links: spans of the source and of the translation.
    """

    text: str
    links: Sequence[tuple[Span, Span]]


@dataclass
class Element:
    """A piece of a line.

    Args:
        opening: the tag before its content; of what is not translated, all of it.
        closing: the tag after its content; empty without one.
        children: texts and elements, in order.
        spaces: of an element without content, whether white space stood before and after it.
        is_tight: of an element without content, whether it stood between words without any.
    """

    opening: str = ""
    closing: str = ""
    children: list[Element | str] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)
    is_tight: bool = False

    @property
    def text(self) -> str:
        """The text in it, without tags."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def elements(self) -> list[Element]:
        """The elements in it, in order."""
        return [child for child in self.children if isinstance(child, Element)]


@dataclass
class Placed:
    """An element and the units of the translation that it is put around.

    Args:
        element: the element.
        begin: the first unit.
        end: the unit after the last one; `begin` for an empty element.
        inner: the elements within it, in order.
    """

    element: Element
    begin: int
    end: int
    inner: list[Placed] = field(default_factory=list)


def note_spaces(line: Element) -> None:
    """Note the white space around each element without content, and leave one space to the text around it, which parts its words."""
    leaves = _leaves(line)
    for number, (parent, index) in enumerate(leaves):
        point = parent.children[index]
        if isinstance(point, str):
            continue
        before, after = (_neighbor(leaves, number, step) for step in (-1, 1))
        # a text that is empty by now was the space between two of them
        has_before = before is not None and (str(before[0].children[before[1]]) or " ")[-1].isspace()
        has_after = after is not None and str(after[0].children[after[1]])[:1].isspace()
        point.spaces = has_before, has_after
        if has_before and has_after and after is not None:
            after[0].children[after[1]] = str(after[0].children[after[1]])[1:]
        elif before is not None and after is not None and not (has_before or has_after):
            point.is_tight = True
            after[0].children[after[1]] = f" {after[0].children[after[1]]}"


def _leaves(element: Element) -> list[tuple[Element, int]]:
    """Return the parent and the index of each text, and of each element without content, in order."""
    leaves = list[tuple[Element, int]]()
    for index, child in enumerate(element.children):
        leaves += _leaves(child) if isinstance(child, Element) and child.children else [(element, index)]
    return leaves


def _neighbor(leaves: Sequence[tuple[Element, int]], number: int, step: int) -> tuple[Element, int] | None:
    """Return the text directly before or after a leaf; None if something else stands there."""
    number += step
    if not 0 <= number < len(leaves):
        return None
    parent, index = leaves[number]
    return (parent, index) if isinstance(parent.children[index], str) else None


def place_tags(line: Element, translation: AlignedText, escape: Callable[[str], str] = str) -> str:
    """Return a translation with the tags of the line that it translates.

    Args:
        line: its `text` was translated.
        translation: with links to that text.
        escape: writes text between tags.
    """
    spans = units(translation.text)
    placer = _Placer(_linked_positions(spans, translation.links))
    return _write(placer.place(line, 0, 0, len(spans)), translation.text, spans, escape)


def _linked_positions(spans: Sequence[Span], links: Sequence[tuple[Span, Span]]) -> list[set[int]]:
    """Return the positions in the source that each unit of the translation is linked to."""
    positions: list[set[int]] = [set() for _ in spans]
    for source, target in links:
        for number, unit in enumerate(spans):
            if unit.begin < target.end and target.begin < unit.end:
                positions[number].update(range(source.begin, source.end))
    return positions


class _Placer:
    """Places the elements of a line.

    Args:
        positions: in the source, that each unit of the translation is linked to.
    """

    def __init__(self, positions: Sequence[set[int]]) -> None:
        self._positions = positions

    def place(self, element: Element, offset: int, begin: int, end: int) -> Placed:
        """Place the elements within one.

        Args:
            element: its elements are placed.
            offset: where its text begins in the source.
            begin: its first unit.
            end: the unit after its last one.
        """
        starts: list[tuple[Element, range]] = []
        for child in element.children:
            if isinstance(child, Element):
                starts.append((child, range(offset, offset + len(child.text))))
            offset += len(child if isinstance(child, str) else child.text)
        stretches = self._stretches([own for _, own in starts], begin, end)
        placed = Placed(element, begin, end)
        for number, (child, own) in enumerate(starts):
            low, high = stretches.get(number) or 2 * (self._point(own.start, begin, end, stretches.values()),)
            placed.inner.append(self.place(child, own.start, low, high))
        # where elements meet, an empty one stands before the words that follow it; sorting keeps the source's order otherwise
        placed.inner.sort(key=lambda item: (item.begin, item.end))
        return placed

    def _stretches(self, owned: Sequence[range], begin: int, end: int) -> dict[int, tuple[int, int]]:
        """Return a stretch of units for each element that has one, by its number; the one with the clearest chooses first.

        Args:
            owned: the positions of each element's text.
            begin: the first unit to choose from.
            end: the unit after the last one.
        """
        free, stretches = [(begin, end)], dict[int, tuple[int, int]]()
        waiting = {number for number, own in enumerate(owned) if own}
        while waiting:
            score, _, number, stretch = max(self._best_stretch(free, owned[number], number) for number in waiting)
            if score <= 0:
                break
            stretches[number] = stretch
            waiting.remove(number)
            free = [part for low, high in free for part in _without(low, high, *stretch)]
        return stretches

    def _best_stretch(self, free: Sequence[tuple[int, int]], own: range, number: int) -> tuple[float, int, int, tuple[int, int]]:
        """Return the stretch with the most own units beyond those of others, after that number, and the element's, negative and as it is.

        A unit without a link counts nothing, and belongs to whatever surrounds it. The maximum subarray: Kadane (Bentley 1984).
        """
        best, stretch = 0.0, (0, 0)
        for low, high in free:
            total, first = 0.0, low
            for unit in range(low, high):
                positions = self._positions[unit]
                share = sum(position in own for position in positions) / len(positions) if positions else 0.5
                if total <= 0:
                    total, first = 0.0, unit
                total += 2 * share - 1
                if total > best:
                    best, stretch = total, (first, unit + 1)
        return best, -number, number, stretch

    def _point(self, start: int, begin: int, end: int, stretches: Iterable[tuple[int, int]]) -> int:
        """Return the unit before which an element without words stands: after the word that was before it, or before the next one."""
        linked = [(unit, self._positions[unit]) for unit in range(begin, end) if self._positions[unit]]
        before = [(start - max(left), unit + 1) for unit, positions in linked if (left := {item for item in positions if item < start})]
        after = [(min(right) - start + 1, unit) for unit, positions in linked if (right := {item for item in positions if item >= start})]
        point = min(before + after, default=(0, begin))[1]
        # not within a neighbor, which stays whole
        return next((high for low, high in stretches if low < point < high), point)


def _without(low: int, high: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return what is left of the units from `low` to before `high` without those from `begin` to before `end`."""
    if end <= low or high <= begin:
        return [(low, high)]
    return [(first, last) for first, last in ((low, begin), (end, high)) if first < last]


def _write(line: Placed, text: str, spans: Sequence[Span], escape: Callable[[str], str]) -> str:
    """Write a translation with its elements; spaces stay outside of those that have words."""
    opened, closed = ([list[str | Element]() for _ in range(len(spans) + 1)] for _ in range(2))

    def add(placed: Placed) -> None:
        for inner in placed.inner:
            if inner.begin == inner.end:
                # at the end of its parent it stands before the parent's closing tag
                is_last = inner.begin == placed.end and placed is not line
                (closed if is_last else opened)[inner.begin] += _flat(inner)
                continue
            opened[inner.begin].append(inner.element.opening)
            add(inner)
            closed[inner.end].append(inner.element.closing)

    add(line)
    pieces, position = list[str | Element](), 0
    for number, unit in enumerate(spans):
        pieces += [*closed[number], escape(text[position : unit.begin]), *opened[number], escape(text[unit.begin : unit.end])]
        position = unit.end
    return _join([*pieces, *closed[-1], escape(text[position:]), *opened[-1]])


def _flat(placed: Placed) -> list[str | Element]:
    """Return an element without words as pieces, with those within it."""
    if not placed.element.children:
        return [placed.element]
    return [placed.element.opening, *(piece for inner in placed.inner for piece in _flat(inner)), placed.element.closing]


def _join(pieces: Sequence[str | Element]) -> str:
    """Join pieces, with white space around elements without content where it stood around them."""
    result, needs_space, is_tight = "", False, False
    for piece in pieces:
        content = f"{piece.opening}{piece.closing}" if isinstance(piece, Element) else piece.lstrip() if is_tight else piece
        if not content:
            continue
        is_tight = isinstance(piece, Element) and piece.is_tight
        result = result.rstrip() if is_tight else result
        needs_space |= isinstance(piece, Element) and piece.spaces[0]
        is_apart = not result or result[-1].isspace() or content[0].isspace()
        result += " " * (needs_space and not is_apart) + content
        needs_space = isinstance(piece, Element) and piece.spaces[1]
    return result
