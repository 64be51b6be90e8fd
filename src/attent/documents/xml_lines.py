"""Paragraphs of XML as lines to translate, and back: formatted text, links, and whatever else stands in them, as a line's elements.

A word processor cuts text into runs without a visible reason. Those of equal format are joined, and the format that most of a paragraph
has is that of its plain text; every other run is an element, which is put around the words that belong to its own.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from attent.documents.archive import Archive, parse_xml
from attent.markup.aligned import untranslated
from attent.markup.inline import AlignedText, Element, cut_line
from attent.markup.placeholders import cut_placeholders
from attent.markup.placement import place_tags

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Node = etree._Element | str


class TextFormat(NamedTuple):
    """The format of some text.

    Args:
        key: equal for equal formats.
        elements: of XML, that express it.
    """

    key: str = ""
    elements: tuple[etree._Element, ...] = ()


class FormattedText(NamedTuple):
    """Text of one format."""

    text: str
    format: TextFormat


class FixedNodes(NamedTuple):
    """Something that is moved as a whole: a picture, a note's sign, a field.

    Args:
        nodes: of XML.
        format: of the text that it stands in.
        is_separator: whether sentences end before it, as before a tab.
        field: "begin", "end" or another mark of a field; empty for what is none.
    """

    nodes: tuple[Node, ...]
    format: TextFormat | None = None
    is_separator: bool = False
    field: str = ""


@dataclass
class ParagraphContent:
    """The content of a paragraph, or of a link.

    Args:
        before: elements that stay before all text, such as the beginning of a bookmark.
        items: text and other things, in order.
        after: elements that stay after all text.
    """

    before: list[etree._Element] = field(default_factory=list)
    items: list[FormattedText | FixedNodes | LinkedContent] = field(default_factory=list)
    after: list[etree._Element] = field(default_factory=list)

    @property
    def base(self) -> TextFormat:
        """The format that most of its text has."""
        sizes, formats = Counter[str](), dict[str, TextFormat]()
        for item in self.items:
            if isinstance(item, FormattedText):
                sizes[item.format.key] += len(item.text.strip())
                formats.setdefault(item.format.key, item.format)
        return formats[sizes.most_common(1)[0][0]] if sizes else TextFormat()


class LinkedContent(NamedTuple):
    """An element with text of its own, such as a link.

    Args:
        element: the element.
        inner: the element within it that has the text; often itself.
        content: what is in it.
    """

    element: etree._Element
    inner: etree._Element
    content: ParagraphContent


class Dialect(Protocol):
    """The way in which a format writes paragraphs."""

    def read(self, element: etree._Element) -> ParagraphContent:
        """Return the content of a paragraph; it may be taken out of it."""
        ...

    def write(self, text: str, text_format: TextFormat) -> list[Node]:
        """Return text of a format."""
        ...

    def fill(self, element: etree._Element, nodes: Sequence[Node]) -> None:
        """Replace the content of a paragraph, or of a link."""
        ...


class XmlParagraph:
    """A paragraph.

    Args:
        element: of XML.
        dialect: reads and writes it.

    Raises:
        DataError: it has too many elements, or they are nested too deep.
    """

    def __init__(self, element: etree._Element, dialect: Dialect) -> None:
        self._element, self._dialect = element, dialect
        self._items: list[Any] = []
        self._content = dialect.read(element)
        self._base = self._content.base
        self._parts: list[Element | FixedNodes] = []
        segment: list[FormattedText | FixedNodes | LinkedContent] = []
        for item in self._content.items:
            if isinstance(item, FixedNodes) and item.is_separator:
                self._parts += [*cut_line(Element(children=self._children(segment, self._base))), item]
                segment = []
            else:
                segment.append(item)
        self._parts += cut_line(Element(children=self._children(segment, self._base)))

    @property
    def lines(self) -> list[Element]:
        """The lines to translate."""
        return [part for part in self._parts if isinstance(part, Element) and any(map(str.isalnum, part.text))]

    def render(self, translations: Iterator[AlignedText]) -> None:
        """Put the translation of each line in its place."""
        nodes: list[Node] = [*self._content.before]
        for part in self._parts:
            if isinstance(part, FixedNodes):
                nodes += part.nodes
                continue
            is_translated = any(map(str.isalnum, part.text))
            aligned = next(translations) if is_translated else untranslated(part.text)
            nodes += self._nodes(parse_xml(f"<line>{place_tags(part, aligned, escape)}</line>".encode()), self._base)
        self._dialect.fill(self._element, [*nodes, *self._content.after])

    def _children(self, items: Sequence[FormattedText | FixedNodes | LinkedContent], base: TextFormat) -> list[Element | str]:
        """Return the children of a line, or of an element in it."""
        children: list[Element | str] = []
        target, current = children, base
        for item in items:
            if isinstance(item, LinkedContent):
                pair = self._tag(item, is_pair=True)
                pair.children = self._children(item.content.items, item.content.base)
                children.append(pair)
                target, current = children, base
                continue
            is_space = isinstance(item, FormattedText) and not item.text.strip()
            text_format = current if is_space or item.format is None else item.format
            if text_format.key != current.key:
                target, current = children, text_format
                if text_format.key != base.key:
                    pair = self._tag(text_format, is_pair=True)
                    children.append(pair)
                    target = pair.children
            target += cut_placeholders(item.text, escape) if isinstance(item, FormattedText) else [self._tag(item)]
        return children

    def _tag(self, item: object, *, is_pair: bool = False) -> Element:
        """Return an element that stands for something, by its number."""
        self._items.append(item)
        number = len(self._items) - 1
        return Element(f'<g n="{number}">', "</g>") if is_pair else Element(f'<x n="{number}"/>')

    def _nodes(self, line: etree._Element, text_format: TextFormat) -> list[Node]:
        """Return the nodes of a rendered line."""
        nodes = self._dialect.write(line.text or "", text_format)
        for child in line:
            item = self._items[int(child.get("n", ""))]
            if isinstance(item, TextFormat):
                nodes += self._nodes(child, item)
            elif isinstance(item, LinkedContent):
                inner = self._nodes(child, item.content.base)
                self._dialect.fill(item.inner, [*item.content.before, *inner, *item.content.after])
                nodes.append(item.element)
            else:
                nodes += item.nodes
            nodes += self._dialect.write(child.tail or "", text_format)
        return nodes


class XmlDocument:
    """A word processor's document.

    Args:
        archive: the file.
        roots: of its entries that have text, by their names.
        dialect: reads and writes their paragraphs.
        paragraphs: the tags of these.
        deleted: the tags of elements whose paragraphs are kept for the record alone.

    Raises:
        DataError: a paragraph has too many elements, or they are nested too deep.
    """

    def __init__(
        self, archive: Archive, roots: Mapping[str, etree._Element], dialect: Dialect, paragraphs: Sequence[str], deleted: Sequence[str]
    ) -> None:
        self._archive, self._roots = archive, dict(roots)
        elements = [
            element
            for root in self._roots.values()
            for element in root.iter(*paragraphs)
            if any(map(str.isalnum, "".join(element.itertext()))) and next(element.iterancestors(*deleted), None) is None
        ]
        self._paragraphs = [XmlParagraph(element, dialect) for element in elements]

    @property
    def lines(self) -> list[Element]:
        """The lines to translate, in order."""
        return [line for paragraph in self._paragraphs for line in paragraph.lines]

    def render(self, translations: Iterable[AlignedText]) -> bytes:
        """Return the file with the translation of each line in its place."""
        remaining = iter(translations)
        for paragraph in self._paragraphs:
            paragraph.render(remaining)
        return self._archive.write(self._roots)


def escape(text: str) -> str:
    """Write text between tags, without what XML cannot hold."""
    return html.escape(ILLEGAL.sub("", text), quote=False)
