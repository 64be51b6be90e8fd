"""Placement of a line's tags in its translation: each occurs once, with the original nesting.

An element is put around the words of the translation that are linked to its own. These may be scattered: of all spans
of words, the element gets the one with the largest excess of its own words over others. A word that is partly in an
element is split at the tag if the translation copies it, as in H<sub>2</sub>O. An element whose words have no
counterpart is kept, empty, after the preceding words; Markdown emphasis, which would then be read as text, is dropped.
Untranslated content (code, a placeholder, an address) is moved like an empty tag. If the tags between two words are the
same as in the source, the white space around them is copied from the source.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from attent.documents.inline import CLOSING, OPENING, POINT, AlignedText, Element, Mark, SourceLine, gap_key
from attent.text.units import Span, units

# Weight of an innermost element's word for outer elements: they include up to 5 foreign words to keep it.
INNERMOST = 6
# Weights of a word and of a sign: attention to signs says little, so an element may include a sign rather than lose a
# word.
WORD, SIGN = 10, 1
# Maximum links searched on either side of an element without words for the nearest one to its parent's words.
REACH = 64


@dataclass(slots=True)
class Placed:
    """An element, and the units of the translation that it encloses.

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


def place_tags(line: Element, translation: AlignedText, escape: Callable[[str], str] = str) -> str:
    """Return a translation with the tags of its source line.

    Args:
        line: the source line.
        translation: the translation of its text, with links to that text.
        escape: escapes the text between tags.
    """
    if not line.elements:
        return escape(translation.text)
    source = SourceLine(line)
    spans = units(translation.text)
    spans, linked = _cut_copies(source, translation.text, spans, _linked_pieces(source, spans, translation.links))
    weights = [WORD if translation.text[span.begin].isalnum() else SIGN for span in spans]
    return _write(_Placer(source, linked, weights).place(line, 0, len(spans)), translation.text, spans, source, escape)


def _linked_pieces(source: SourceLine, spans: Sequence[Span], links: Sequence[tuple[Span, Span]]) -> list[set[int]]:
    """Return the pieces of the source that each unit of the translation is linked to."""
    linked: list[set[int]] = [set() for _ in spans]
    begins, ends = [span.begin for span in spans], [span.end for span in spans]
    for source_span, target in links:
        pieces = range(bisect_right(source.ends, source_span.begin), bisect_left(source.begins, source_span.end))
        for number in range(bisect_right(ends, target.begin), bisect_left(begins, target.end)):
            linked[number].update(pieces)
    return linked


def _cut_copies(
    source: SourceLine, text: str, spans: Sequence[Span], linked: Sequence[set[int]]
) -> tuple[list[Span], list[set[int]]]:
    """Split units of the translation that copy source words with tags inside.

    Returns all units, and the pieces that each is linked to.
    """
    cut, results = dict(source.cut), list[tuple[Span, set[int]]]()
    for span, pieces in zip(spans, linked, strict=True):
        first = next(
            (
                piece
                for piece in sorted(pieces & cut.keys())
                if source.has_word(cut[piece], text[span.begin : span.end])
            ),
            None,
        )
        if first is None:
            results.append((span, pieces))
            continue
        offset = span.begin - source.begins[first]
        results += (
            (Span(source.begins[piece] + offset, source.ends[piece] + offset), {piece}) for piece in cut.pop(first)
        )
    return [span for span, _ in results], [pieces for _, pieces in results]


class _Placer:
    """Places the elements of a line.

    Args:
        source: the source line.
        linked: the pieces of the source that each unit of the translation is linked to.
        weights: the weight of each unit.
    """

    def __init__(self, source: SourceLine, linked: Sequence[set[int]], weights: Sequence[int]) -> None:
        self._source, self._linked, self._weights = source, linked, weights
        # each linked piece with its unit
        links = sorted((piece, unit) for unit, pieces in enumerate(linked) for piece in pieces)
        self._link_pieces, self._link_units = [piece for piece, _ in links], [unit for _, unit in links]
        # weights for elements that contain others
        factors = [INNERMOST if any(map(source.is_innermost.__getitem__, pieces)) else 1 for pieces in linked]
        self._outer_weights = [weight * factor for weight, factor in zip(weights, factors, strict=True)]
        # cumulative costs of including units, which is free for units without links
        self._costs, self._outer_costs = (
            [0, *accumulate(weight if pieces else 0 for weight, pieces in zip(unit_weights, linked, strict=True))]
            for unit_weights in (weights, self._outer_weights)
        )

    def place(self, element: Element, begin: int, end: int) -> Placed:
        """Place the child elements of an element.

        Args:
            element: the element that contains them.
            begin: its first unit.
            end: the unit after its last one.
        """
        placed, children = Placed(element, begin, end), element.elements
        if not children:
            return placed
        stretches = self._stretches(children, begin, end)
        neighbors = sorted(stretches.values())
        for number, child in enumerate(children):
            low, high = stretches.get(number) or 2 * (self._point(self._source.begin(child), begin, end, neighbors),)
            placed.inner.append(self.place(child, low, high))
        # where elements meet, an empty one comes before the words that follow it; otherwise sorting keeps the source's
        # order
        placed.inner.sort(key=lambda item: (item.begin, item.end))
        return placed

    def _stretches(self, elements: Sequence[Element], begin: int, end: int) -> dict[int, tuple[int, int]]:
        """Return the span of units of each element that has one, by the element's index.

        The element with the best span chooses first.

        Args:
            elements: sibling elements.
            begin: the first unit to choose from.
            end: the unit after the last one.
        """
        is_free, stretches = bytearray(len(self._linked)), dict[int, tuple[int, int]]()
        is_free[begin:end] = b"\1" * (end - begin)
        waiting = [
            self._best_stretch(is_free, element, number) for number, element in enumerate(elements) if element.children
        ]
        heapq.heapify(waiting)
        while waiting:
            score, number, (low, high) = heapq.heappop(waiting)
            if score >= 0:
                break
            if is_free.find(0, low, high) >= 0:
                # another element took some of the units; what is left cannot score higher
                heapq.heappush(waiting, self._best_stretch(is_free, elements[number], number))
                continue
            stretches[number] = low, high
            is_free[low:high] = bytes(high - low)
        return stretches

    def _best_stretch(self, is_free: bytearray, element: Element, number: int) -> tuple[float, int, tuple[int, int]]:
        """Return the negative score of an element's best span, the element's index, and the span.

        The score is the weight of the element's own units minus that of others. A unit without links has no weight; one
        linked to a word that is partly in the element counts as a sign. For outer elements, words of innermost elements
        count several times: the element may include a foreign word rather than lose one of theirs.

        This is the maximum subarray (Kadane's algorithm, Bentley 1984); it only visits the element's own units, since
        units between them can only lower the score.
        """
        own, is_outer = self._source.pieces(element), self._source.is_outer(element)
        weights, costs = (self._outer_weights, self._outer_costs) if is_outer else (self._weights, self._costs)
        low, high = (bisect_left(self._link_pieces, piece) for piece in (own.start, own.stop))
        best, stretch = 0.0, (0, 0)
        total, first, following = 0.0, 0, 0
        for unit in sorted({*self._link_units[low:high]}):
            if total > 0:
                total = 0.0 if is_free.find(0, following, unit + 1) >= 0 else total - (costs[unit] - costs[following])
            following = unit + 1
            if not is_free[unit]:
                continue
            if total <= 0:
                total, first = 0.0, unit
            total += (2 * self._source.share(self._linked[unit], own) - 1 or SIGN / WORD) * weights[unit]
            if total > best:
                best, stretch = total, (first, unit + 1)
        return -best, number, stretch

    def _point(self, start: int, begin: int, end: int, stretches: Sequence[tuple[int, int]]) -> int:
        """Return the unit before which an element without words is placed.

        The place is after the preceding word of the source, or before the following one.
        """
        begins, ends = self._source.begins, self._source.ends
        index = bisect_left(self._link_pieces, bisect_left(begins, start))
        before = self._nearest(range(index - 1, max(index - REACH, 0) - 1, -1), begin, end)
        after = self._nearest(range(index, min(index + REACH, len(self._link_pieces))), begin, end)
        points = [(start - ends[piece] + 1, unit + 1) for piece, unit in before] + [
            (begins[piece] - start + 1, unit) for piece, unit in after
        ]
        point = min(points, default=(0, begin))[1]
        # not inside a neighbor, which must not be split
        low, high = stretches[bisect_left(stretches, (point,)) - 1] if stretches else (0, 0)
        return high if low < point < high else point

    def _nearest(self, indices: range, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the first link, in this order, to a unit from `begin` to `end` - 1, and others of the same piece."""
        nearest = list[tuple[int, int]]()
        for index in indices:
            piece, unit = self._link_pieces[index], self._link_units[index]
            if nearest and nearest[0][0] != piece:
                break
            if begin <= unit < end:
                nearest.append((piece, unit))
        return nearest


def _write(line: Placed, text: str, spans: Sequence[Span], source: SourceLine, escape: Callable[[str], str]) -> str:
    """Return a translation with its elements as text; spaces are outside elements that have words."""
    opened, closed = (defaultdict[int, list[Mark]](list) for _ in range(2))

    def add(placed: Placed) -> None:
        for inner in placed.inner:
            if inner.begin == inner.end:
                # at the end of its parent, it comes before the parent's closing tag
                is_last = inner.begin == placed.end and placed is not line
                (closed if is_last else opened)[inner.begin] += _flat(inner)
                continue
            opened[inner.begin].append(Mark(inner.element, OPENING))
            add(inner)
            closed[inner.end].append(Mark(inner.element, CLOSING))

    add(line)
    joiner, position = _Joiner(), 0
    for number in sorted({*opened, *closed}):
        begin = spans[number - 1].end if number else 0
        end = spans[number].begin if number < len(spans) else len(text)
        joiner.add(escape(text[position:begin]))
        pieces = source.gaps.get(gap_key(text[begin:end], (*closed[number], *opened[number])))
        if pieces is None:
            for piece in (*closed[number], escape(text[begin:end]), *opened[number]):
                joiner.add(piece)
        else:
            joiner.add_unchanged("".join(escape(piece) if isinstance(piece, str) else piece.text for piece in pieces))
        position = end
    joiner.add(escape(text[position:]))
    return joiner.text


def _flat(placed: Placed) -> list[Mark]:
    """Return the tags of an element without words and of the elements within it."""
    if not placed.element.children:
        return [Mark(placed.element, POINT)]
    inner = [piece for inner in placed.inner for piece in _flat(inner)]
    is_left_out = bool(placed.element.text.strip()) and placed.element.can_vanish
    return inner if is_left_out else [Mark(placed.element, OPENING), *inner, Mark(placed.element, CLOSING)]


class _Joiner:
    """Joins texts and tags, and restores the white space around elements without content."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._needs_space = self._is_tight = False

    @property
    def text(self) -> str:
        """The joined text."""
        return "".join(self._pieces)

    def add(self, piece: str | Mark) -> None:
        """Add an escaped text, or a tag."""
        point = piece.element if isinstance(piece, Mark) and piece.kind == POINT else None
        content = piece.text if isinstance(piece, Mark) else piece
        content = content.lstrip() if point is None and self._is_tight else content
        if not content:
            return
        # an element directly after a word stays directly after one
        if point is not None and (point.is_tight or point.spaces == (False, True)):
            self._strip()
        self._needs_space |= point is not None and point.spaces[0]
        if self._needs_space and self._pieces and not (self._pieces[-1][-1].isspace() or content[0].isspace()):
            self._pieces.append(" ")
        self._pieces.append(content)
        self._needs_space = point is not None and point.spaces[1]
        self._is_tight = point is not None and point.is_tight

    def add_unchanged(self, content: str) -> None:
        """Add text and tags that already have their white space."""
        if content:
            self._pieces.append(content)
        self._needs_space = self._is_tight = False

    def _strip(self) -> None:
        """Remove white space from the end."""
        while self._pieces:
            last = self._pieces.pop().rstrip()
            if last:
                self._pieces.append(last)
                return
