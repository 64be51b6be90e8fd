"""A line of text with tags in it, and its translation with the same tags: each once, nested as they were.

An element is put around the words of the translation that are linked to its own. They need not be side by side: of all stretches of words
the element takes the one with the most of its own words beyond those of others. A word that is half within an element is cut at the tag if
it comes out as it was, as in H<sub>2</sub>O. An element whose words have no counterpart stays, empty, where the words before it ended;
emphasis of Markdown's, which would be read as text, goes. What is not translated (code, a placeholder, an address) is moved the same way
as an empty tag.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from attent.data.units import Span, units
from attent.errors import DataError

# Elements within elements of a line, and elements of a line in all.
MAX_DEPTH, MAX_ELEMENTS = 50, 2_000
# Characters of a line with elements: each is linked, which takes a hundred bytes of memory.
MAX_CHARACTERS = 100_000
# Texts and elements after which a line is cut in two: what a list of links without a block's tag between them comes to.
MAX_CHILDREN = 256


class AlignedText(NamedTuple):
    """A translation, and which characters of it belong to which of the source.

    Args:
        text: the translation.
        links: spans of the source and of the translation.
    """

    text: str
    links: Sequence[tuple[Span, Span]]


# What a word of an innermost element counts, to those around it: they bridge so many foreign words but one for it.
INNERMOST = 6
# What a sign counts, to a word's 1: attention to signs says little, and rather does an element bridge one than that it loses a word.
SIGN = 0.1


@dataclass
class Element:
    """A piece of a line.

    Args:
        opening: the tag before its content; of what is not translated, all of it.
        closing: the tag after its content; empty without one.
        children: texts and elements, in order.
        spaces: of an element without content, whether white space stood before and after it.
        is_tight: of an element without content, whether it stood between words without any.
        can_vanish: whether its tags are left out where its words have no counterpart.
    """

    opening: str = ""
    closing: str = ""
    children: list[Element | str] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)
    is_tight: bool = False
    can_vanish: bool = False

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


def cut_line(line: Element) -> list[Element]:
    """Cut a line that is finished into lines of a size to be aligned, and note the spaces in each.

    Raises:
        DataError: it has too many elements, they are nested too deep, or the text around them is too long.
    """
    pieces = [Element(children=line.children[begin : begin + MAX_CHILDREN]) for begin in range(0, len(line.children), MAX_CHILDREN)]
    for piece in pieces or [line]:
        level, count = piece.elements, 0
        for _ in range(MAX_DEPTH):
            count += len(level)
            level = [inner for element in level for inner in element.elements]
        if level or count > MAX_ELEMENTS:
            raise DataError(f"a line may have at most {MAX_ELEMENTS:,} tags, nested at most {MAX_DEPTH} deep")
        if count and len(piece.text) > MAX_CHARACTERS:
            raise DataError(f"a line with tags may have at most {MAX_CHARACTERS:,} characters")
        note_spaces(piece)
    return pieces or [line]


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
        # one that begins a line may come to stand within it
        has_before |= number == 0 and has_after
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
    spans, positions = _cut_copies(line, translation.text, spans, _linked_positions(spans, translation.links))
    weights = [1.0 if translation.text[span.begin].isalnum() else SIGN for span in spans]
    placer = _Placer(positions, weights, _innermost(line, 0))
    return _write(placer.place(line, 0, 0, len(spans)), translation.text, spans, escape)


def _linked_positions(spans: Sequence[Span], links: Sequence[tuple[Span, Span]]) -> list[set[int]]:
    """Return the positions in the source that each unit of the translation is linked to."""
    positions: list[set[int]] = [set() for _ in spans]
    begins, ends = [span.begin for span in spans], [span.end for span in spans]
    for source, target in links:
        for number in range(bisect_right(ends, target.begin), bisect_left(begins, target.end)):
            positions[number].update(range(source.begin, source.end))
    return positions


def _cut_copies(line: Element, text: str, spans: Sequence[Span], positions: Sequence[set[int]]) -> tuple[list[Span], list[set[int]]]:
    """Cut the units of a translation that were cut by tags in the source and came out as they were, and return all with their positions."""
    source, tags = line.text, sorted(set(_tag_positions(line, 0)))
    # the begin, the tags and the end of each word with tags in it, by its begin
    cut = {unit.begin: [unit.begin, *inner, unit.end] for unit in units(source) if (inner := _between(tags, unit))} if tags else {}
    pieces = list[tuple[Span, set[int]]]()
    for span, linked in zip(spans, positions, strict=True):
        word = text[span.begin : span.end]
        begin = next((begin for begin in sorted(linked & cut.keys()) if source[begin : cut[begin][-1]] == word), None)
        if begin is None:
            pieces.append((span, linked))
            continue
        for low, high in pairwise(cut.pop(begin)):
            pieces.append((Span(span.begin + low - begin, span.begin + high - begin), {*range(low, high)}))
    return [span for span, _ in pieces], [linked for _, linked in pieces]


def _between(tags: Sequence[int], unit: Span) -> Sequence[int]:
    """Return the tags within a unit."""
    return tags[bisect_right(tags, unit.begin) : bisect_left(tags, unit.end)]


def _tag_positions(element: Element, offset: int) -> Iterator[int]:
    """Yield the positions in the source of the tags within an element, whose text begins at `offset`."""
    for child in element.children:
        size = len(child if isinstance(child, str) else child.text)
        if isinstance(child, Element):
            yield from (offset, *_tag_positions(child, offset), offset + size)
        offset += size


def _innermost(element: Element, offset: int) -> set[int]:
    """Return the positions within elements that have text and no further element with text; the element's own text begins at `offset`."""
    positions = set[int]()
    for child in element.children:
        size = len(child if isinstance(child, str) else child.text)
        if isinstance(child, Element) and size:
            positions |= _innermost(child, offset) if any(inner.text for inner in child.elements) else {*range(offset, offset + size)}
        offset += size
    return positions


class _Placer:
    """Places the elements of a line.

    Args:
        positions: in the source, that each unit of the translation is linked to.
        weights: what each unit counts.
        innermost: positions in the source within an element that has no further one within.
    """

    def __init__(self, positions: Sequence[set[int]], weights: Sequence[float], innermost: set[int]) -> None:
        self._positions, self._weights, self._innermost = positions, weights, innermost
        # each linked position with its unit
        self._links = sorted((position, unit) for unit, linked in enumerate(positions) for position in linked)

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
        is_free, stretches = bytearray(len(self._positions)), dict[int, tuple[int, int]]()
        is_free[begin:end] = b"\1" * (end - begin)
        waiting = [self._best_stretch(is_free, own, number) for number, own in enumerate(owned) if own]
        heapq.heapify(waiting)
        while waiting:
            score, number, (low, high) = heapq.heappop(waiting)
            if score >= 0:
                break
            if is_free.find(0, low, high) >= 0:
                # units that have gone to another element: what is left for this one cannot be clearer
                heapq.heappush(waiting, self._best_stretch(is_free, owned[number], number))
                continue
            stretches[number] = low, high
            is_free[low:high] = bytes(high - low)
        return stretches

    def _best_stretch(self, is_free: bytearray, own: range, number: int) -> tuple[float, int, tuple[int, int]]:
        """Return minus the own units beyond those of others in the stretch that has the most, the element's number, and the stretch.

        A unit without a link counts nothing, and belongs to whatever surrounds it; one that is linked to a word half within the element
        is worth a sign. For an element around others, words of innermost
        elements count as several: rather does it take a foreign word in than that one of these loses its own.

        The maximum subarray: Kadane (Bentley 1984).
        """
        best, stretch = 0.0, (0, 0)
        linked = [unit for _, unit in self._links[bisect_left(self._links, (own.start,)) : bisect_left(self._links, (own.stop,))]]
        total, first = 0.0, 0
        is_outer = not self._innermost.issuperset(own)
        for unit in range(min(linked, default=0), max(linked, default=-1) + 1):
            positions = self._positions[unit]
            share = sum(position in own for position in positions) / len(positions) if positions else 0.5
            if not is_free[unit]:
                total = 0.0
                continue
            if total <= 0:
                total, first = 0.0, unit
            factor = INNERMOST if is_outer and not self._innermost.isdisjoint(positions) else 1
            excess = 2 * share - 1 or SIGN * bool(positions)
            total += excess * factor * self._weights[unit]
            if total > best:
                best, stretch = total, (first, unit + 1)
        return -best, number, stretch

    def _point(self, start: int, begin: int, end: int, stretches: Iterable[tuple[int, int]]) -> int:
        """Return the unit before which an element without words stands: after the word that was before it, or before the next one."""
        index = bisect_left(self._links, (start,))
        before = self._nearest(range(index - 1, -1, -1), begin, end)
        after = self._nearest(range(index, len(self._links)), begin, end)
        points = [(start - position, unit + 1) for position, unit in before] + [(position - start + 1, unit) for position, unit in after]
        point = min(points, default=(0, begin))[1]
        # not within a neighbor, which stays whole
        return next((high for low, high in stretches if low < point < high), point)

    def _nearest(self, indices: range, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the first link in this order to units from `begin` to before `end`, and those of the same position."""
        nearest = list[tuple[int, int]]()
        for index in indices:
            position, unit = self._links[index]
            if nearest and nearest[0][0] != position:
                break
            if begin <= unit < end:
                nearest.append((position, unit))
        return nearest


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
    inner = [piece for inner in placed.inner for piece in _flat(inner)]
    has_lost_words = bool(placed.element.text.strip())
    return inner if has_lost_words and placed.element.can_vanish else [placed.element.opening, *inner, placed.element.closing]


def _join(pieces: Sequence[str | Element]) -> str:
    """Join pieces, with white space around elements without content where it stood around them."""
    result, needs_space, is_tight = "", False, False
    for piece in pieces:
        content = f"{piece.opening}{piece.closing}" if isinstance(piece, Element) else piece.lstrip() if is_tight else piece
        if not content:
            continue
        is_tight = isinstance(piece, Element) and piece.is_tight
        # what stood directly after a word stays at one
        is_after_word = isinstance(piece, Element) and piece.spaces == (False, True)
        result = result.rstrip() if is_tight or is_after_word else result
        needs_space |= isinstance(piece, Element) and piece.spaces[0]
        is_apart = not result or result[-1].isspace() or content[0].isspace()
        result += " " * (needs_space and not is_apart) + content
        needs_space = isinstance(piece, Element) and piece.spaces[1]
    return result
