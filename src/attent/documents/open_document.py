"""Texts of OpenDocument (.odt): text in spans, each with the name of its style.

Source: OpenDocument 1.3, part 3, sections 5 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from attent.documents.archive import Archive
from attent.documents.xml_lines import (
    FixedNodes,
    Formats,
    FormattedText,
    LinkedContent,
    Node,
    ParagraphContent,
    TextFormat,
    XmlDocument,
    check_movable,
    put,
)
from attent.errors import DataError

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
CONTENT, STYLES, KIND = "content.xml", "styles.xml", "mimetype"
MIME_TYPE = b"application/vnd.oasis.opendocument.text"
# Spaces that an element may stand for.
MAX_SPACES = 200
# White space that counts as one space, but for single spaces: to replace each of these takes eight times their memory.
WHITE_SPACE = re.compile(r"[\t\r\n][ \t\r\n]*+| [ \t\r\n]++")
SPACES = re.compile(r"( {2,})")


def read_open_document(content: bytes) -> XmlDocument:
    """Read a document.

    Raises:
        DataError: it is none, or cannot be read.
    """
    archive = Archive(content)
    if KIND not in archive.names or not archive.read(KIND).startswith(MIME_TYPE):
        raise DataError("the file is no text of OpenDocument")
    # headers and footers are in the styles
    roots = {name: archive.read_xml(name) for name in (CONTENT, *(name for name in archive.names if name == STYLES))}
    untranslated = [f"{TEXT}deletion", f"{TEXT}soft-page-break"]
    return XmlDocument(archive, roots, OpenDocumentDialect(Formats(archive)), [f"{TEXT}p", f"{TEXT}h"], untranslated)


class OpenDocumentDialect:
    """Paragraphs of text and spans.

    Args:
        formats: of the document.
    """

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def read(self, element: etree._Element) -> ParagraphContent:
        content = ParagraphContent()
        self._read(element, TextFormat(), content, element)
        return content

    def write(self, text: str, text_format: TextFormat, parent: etree._Element) -> list[Node]:
        nodes: list[Node] = []
        # two spaces and more are an element
        for piece in SPACES.split(text):
            if SPACES.fullmatch(piece):
                nodes.append(etree.SubElement(parent, f"{TEXT}s", {f"{TEXT}c": str(len(piece))}))
            elif piece:
                nodes.append(piece)
        return self._in_spans(nodes, text_format, parent) if nodes else []

    def fill(self, element: etree._Element, nodes: Sequence[Node]) -> None:
        put(element, [node for node in nodes if not isinstance(node, str)])
        # texts by the number of the element before them
        texts: list[list[str]] = [[]]
        for node in nodes:
            if isinstance(node, str):
                texts[-1].append(node)
            else:
                texts.append([])
        element.text = "".join(texts[0])
        for child, tail in zip(element, texts[1:], strict=True):
            child.tail = "".join(tail)

    def _read(
        self, element: etree._Element, text_format: TextFormat, content: ParagraphContent, parent: etree._Element
    ) -> None:
        def add_text(text: str | None) -> None:
            if text:
                content.items.append(FormattedText(WHITE_SPACE.sub(" ", text), text_format))

        add_text(element.text)
        for child in list(element):
            # a comment is passed over; what is moved loses the text after it
            name, tail = (
                str(child.tag).rpartition("}")[2] if isinstance(child.tag, str) else "soft-page-break",
                child.tail,
            )
            if text_format.element is not None and child.tag != f"{TEXT}span":
                check_movable(child)
            if child.tag == f"{TEXT}span":
                self._read(child, self._formats.read(child, text_format), content, parent)
            elif child.tag == f"{TEXT}a":
                inner = ParagraphContent()
                self._read(child, text_format, inner, child)
                content.items.append(LinkedContent(child, child, inner))
            elif child.tag == f"{TEXT}s":
                count = child.get(f"{TEXT}c", "1")
                spaces = min(int(count), MAX_SPACES) if count.isdecimal() and len(count) < 9 else 1
                content.items.append(FormattedText(" " * spaces, text_format))
            elif name.endswith("-start"):
                content.before.append(child)
            elif name.endswith("-end"):
                content.after.append(child)
            elif name != "soft-page-break":
                nodes = tuple(self._in_spans([child], text_format, parent))
                content.items.append(FixedNodes(nodes, text_format, is_separator=name == "tab"))
            add_text(tail)

    def _in_spans(self, nodes: Sequence[Node], text_format: TextFormat, parent: etree._Element) -> list[Node]:
        """Return nodes within spans of a format."""
        spans, outer = list[etree._Element](), text_format
        while outer is not None and outer.element is not None:
            self._formats.add_copy(outer)
            spans.append(outer.element)
            outer = outer.outer
        if not spans:
            return [*nodes]
        outermost = inner = None
        for span in reversed(spans):
            inner = etree.SubElement(parent if inner is None else inner, span.tag, dict(span.attrib))
            outermost = outermost if outermost is not None else inner
        self.fill(inner, nodes)
        return [outermost]
