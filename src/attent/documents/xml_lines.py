"""Conversion of XML paragraphs into lines to translate, and back.

Formatted text, links and other content become elements of a line. Word processors split text into runs without a
visible reason. Runs with equal formats are joined, and the most frequent format of a paragraph counts as plain text;
every other run is an element, which is put around the corresponding words of the translation.
"""

from __future__ import annotations

import copy
import hashlib
import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple, Protocol

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from attent.documents.archive import Archive, parse_xml
from attent.documents.inline import (
    AlignedText,
    Element,
    check_size,
    cut_line,
    cut_placeholders,
    has_words,
    untranslated,
)
from attent.documents.placement import place_tags
from attent.errors import DataError

# Approximate bytes of a tag or an attribute without its value.
TAG_SIZE = 10
# Maximum elements of content that is moved as a whole, next to text in the same run or span: moving it takes quadratic
# time.
MAX_MOVED = 10_000
# Maximum nesting of paragraphs (text boxes, notes), and number of namespaces in scope of an element.
MAX_NESTED, MAX_NAMESPACES = 5, 256
ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Node = etree._Element | str


class TextFormat(NamedTuple):
    """The format of some text.

    Args:
        key: a number, equal for equal formats of a document; 0 for no format.
        element: a copy of the XML element that expresses the format.
        outer: the enclosing format, if formats are nested.
        size: the approximate number of bytes of its XML.
        tags: the number of its tags and attributes.
    """

    key: int = 0
    element: etree._Element | None = None
    outer: TextFormat | None = None
    size: int = 0
    tags: int = 0


class Formats:
    """The formats of a document: their numbers, one copy of each, and the number of times that each may be written.

    Args:
        archive: counts the XML of formats that are written more often than they were read.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._keys: dict[bytes, int] = {}
        self._formats: dict[bytes, TextFormat] = {}
        self._unwritten = Counter[int]()

    def read(
        self, element: etree._Element, outer: TextFormat | None = None, unseen: frozenset[str] | None = None
    ) -> TextFormat:
        """Return the format that an element expresses by its attributes and content.

        Args:
            element: the XML element.
            outer: the enclosing format.
            unseen: tags of invisible content, which is not part of the format. By default, no content is.
        """
        # tags and names of attributes; texts and values
        names: list[str | None] = []
        texts: list[str | None] = []

        def add(nodes: Iterable[etree._Element]) -> None:
            for node in nodes:
                attributes = sorted(node.attrib.items())
                names.extend((str(node.tag), *(f"@{name}" for name, _ in attributes)))
                texts.extend((node.text, *(value for _, value in attributes)))
                add(node)
                names.append(None)
                texts.append(node.tail)

        parts = [] if unseen is None else [*element]
        visible = [part for part in parts if unseen is None or part.tag not in unseen]
        add(visible)
        around = 0 if outer is None else outer.key, sorted(element.attrib.items())
        key = (
            self._keys.setdefault(_digest((around, names, texts)), len(self._keys) + 1)
            if visible or unseen is None
            else 0
        )
        add(part for part in parts if unseen is not None and part.tag in unseen)
        text_format = self._formats.get(digest := _digest((around, names, texts)))
        if text_format is None:
            size = TAG_SIZE * (len(names) + 1) + sum(map(len, filter(None, (*texts, *element.attrib.values()))))
            # a copy, so that the document that was read can be freed
            copied = etree.Element(element.tag, dict(element.attrib)) if unseen is None else copy.deepcopy(element)
            text_format = self._formats[digest] = TextFormat(
                key, copied, outer, size, len(names) + 1 + len(element.attrib)
            )
        self._unwritten[key] += 1
        return text_format

    def add_copy(self, text_format: TextFormat) -> None:
        """Count one more written copy of a format against the archive's limits.

        Raises:
            DataError: the total exceeds a limit.
        """
        if self._unwritten[text_format.key] > 0:
            self._unwritten[text_format.key] -= 1
        else:
            self._archive.add_xml(text_format.size, text_format.tags)


def _digest(content: object) -> bytes:
    return hashlib.blake2b(repr(content).encode("utf-8", "replace"), digest_size=16).digest()


def check_movable(element: etree._Element) -> None:
    """Check that an element is small enough to be moved out of its parent.

    Raises:
        DataError: the element contains too many others.
    """
    if next(islice(element.iter(), MAX_MOVED, None), None) is not None:
        raise DataError(f"content within text may have at most {MAX_MOVED:,} elements")


def put(element: etree._Element, nodes: Sequence[etree._Element]) -> None:
    """Make these nodes the content of an element, in this order.

    They must already be in it, or in the same namespace scope: lxml takes quadratic time to move nodes out of a scope.
    """
    for node in nodes:
        element.append(node)
    del element[: len(element) - len(nodes)]


class FormattedText(NamedTuple):
    """A text in a single format."""

    text: str
    format: TextFormat


class FixedNodes(NamedTuple):
    """Content that is moved as a whole: a picture, a note reference, a field.

    Args:
        nodes: the XML nodes.
        format: the format of the surrounding text.
        is_separator: True if it separates sentences, as a tab does.
        field: "begin", "end" or another mark of a field; otherwise empty.
    """

    nodes: tuple[Node, ...]
    format: TextFormat | None = None
    is_separator: bool = False
    field: str = ""


@dataclass(slots=True)
class ParagraphContent:
    """The content of a paragraph, or of a link.

    Args:
        before: elements that stay before all text, such as a bookmark start.
        items: text and other content, in order.
        after: elements that stay after all text.
    """

    before: list[etree._Element] = field(default_factory=list)
    items: list[FormattedText | FixedNodes | LinkedContent] = field(default_factory=list)
    after: list[etree._Element] = field(default_factory=list)

    @property
    def base(self) -> TextFormat:
        """The format of most of the text."""
        sizes, formats = Counter[int](), dict[int, TextFormat]()
        for item in self.items:
            if isinstance(item, FormattedText):
                sizes[item.format.key] += len(item.text.strip())
                formats.setdefault(item.format.key, item.format)
        return formats[sizes.most_common(1)[0][0]] if sizes else TextFormat()


class LinkedContent(NamedTuple):
    """An element that contains text, such as a link.

    Args:
        element: the element.
        inner: the element within it that contains the text; often the same element.
        content: the content of `inner`.
    """

    element: etree._Element
    inner: etree._Element
    content: ParagraphContent


class Dialect(Protocol):
    """Reader and writer of the paragraphs of a file format."""

    def read(self, element: etree._Element) -> ParagraphContent:
        """Return the content of a paragraph; it may be removed from the paragraph."""
        ...

    def write(self, text: str, text_format: TextFormat, parent: etree._Element) -> list[Node]:
        """Return text in a format as nodes; new elements are appended to `parent`, a paragraph or a link."""
        ...

    def fill(self, element: etree._Element, nodes: Sequence[Node]) -> None:
        """Replace the content of a paragraph, or of a link."""
        ...


class XmlParagraph:
    """A paragraph of an XML document.

    Args:
        element: the XML element.
        dialect: reads and writes the paragraph.

    Raises:
        DataError: the paragraph has too many elements, or they are nested too deeply.
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
    def placed(self) -> list[Element]:
        """All lines, including those without words."""
        return [part for part in self._parts if isinstance(part, Element)]

    @property
    def lines(self) -> list[Element]:
        """The lines to translate."""
        return [line for line in self.placed if has_words(line.text)]

    def render(self, translations: Iterator[AlignedText]) -> None:
        """Replace each line in the paragraph by its translation."""
        nodes: list[Node] = [*self._content.before]
        for part in self._parts:
            if isinstance(part, FixedNodes):
                nodes += part.nodes
                continue
            aligned = next(translations) if has_words(part.text) else untranslated(part.text)
            if part.elements:
                line = parse_xml(f"<line>{place_tags(part, aligned, escape)}</line>".encode())
                nodes += self._nodes(line, self._base, self._element)
            else:
                nodes += self._dialect.write(ILLEGAL.sub("", aligned.text), self._base, self._element)
        self._dialect.fill(self._element, [*nodes, *self._content.after])

    def _children(
        self, items: Sequence[FormattedText | FixedNodes | LinkedContent], base: TextFormat
    ) -> list[Element | str]:
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
        """Return an element that refers to an item by its number."""
        self._items.append(item)
        number = len(self._items) - 1
        return Element(f'<g n="{number}">', "</g>") if is_pair else Element(f'<x n="{number}"/>')

    def _nodes(self, line: etree._Element, text_format: TextFormat, parent: etree._Element) -> list[Node]:
        """Convert a rendered line back into nodes of the document."""
        nodes = self._dialect.write(line.text or "", text_format, parent)
        for child in line:
            item = self._items[int(child.get("n", ""))]
            if isinstance(item, TextFormat):
                nodes += self._nodes(child, item, parent)
            elif isinstance(item, LinkedContent):
                inner = self._nodes(child, item.content.base, item.inner)
                self._dialect.fill(item.inner, [*item.content.before, *inner, *item.content.after])
                nodes.append(item.element)
            else:
                nodes += item.nodes
            nodes += self._dialect.write(child.tail or "", text_format, parent)
        return nodes


class XmlDocument:
    """A word-processor document.

    Args:
        archive: the file.
        roots: the root elements of its entries that contain text, by entry name.
        dialect: reads and writes the paragraphs.
        paragraphs: the tags of paragraphs.
        untranslated: the tags of elements whose paragraphs are not translated, such as deleted passages.

    Raises:
        DataError: a paragraph has too many elements, or they are nested too deeply.
    """

    def __init__(
        self,
        archive: Archive,
        roots: Mapping[str, etree._Element],
        dialect: Dialect,
        paragraphs: Sequence[str],
        untranslated: Sequence[str],
    ) -> None:
        self._archive, self._roots = archive, dict(roots)
        elements = [
            element for root in self._roots.values() for element in _find_paragraphs(root, paragraphs, untranslated)
        ]
        self._paragraphs = [XmlParagraph(element, dialect) for element in elements]
        check_size([part for paragraph in self._paragraphs for part in paragraph.placed])

    @property
    def lines(self) -> list[Element]:
        """The lines to translate, in order."""
        return [line for paragraph in self._paragraphs for line in paragraph.lines]

    def render(self, translations: Iterable[AlignedText]) -> bytes:
        """Return the bytes of the file with each line replaced by its translation."""
        remaining = iter(translations)
        # free each paragraph when it has been written
        self._paragraphs.reverse()
        while self._paragraphs:
            self._paragraphs.pop().render(remaining)
        return self._archive.write(self._roots)


def _find_paragraphs(
    root: etree._Element, paragraphs: Sequence[str], untranslated: Sequence[str]
) -> Iterator[etree._Element]:
    """Yield the paragraphs with text to translate, in order.

    Raises:
        DataError: paragraphs or namespaces are nested too deeply.
    """
    # a name is looked up among all namespaces in scope
    names = accumulate(
        1 if event == "start-ns" else -1 for event, _ in etree.iterwalk(root, events=("start-ns", "end-ns"))
    )
    if max(names, default=0) > MAX_NAMESPACES:
        raise DataError(f"its XML may have at most {MAX_NAMESPACES} namespaces in scope")
    for element in root.iter(*paragraphs):
        if next(islice(element.iterancestors(*paragraphs), MAX_NESTED, None), None) is not None:
            raise DataError(f"paragraphs may be nested at most {MAX_NESTED} deep")
        if any(map(has_words, element.itertext())) and next(element.iterancestors(*untranslated), None) is None:
            yield element


def escape(text: str) -> str:
    """Escape text for XML, and remove characters that XML forbids."""
    return html.escape(ILLEGAL.sub("", text), quote=False)
