"""Word-processor documents: Word (.docx), where each run of text has a format, and OpenDocument (.odt), with spans.

Sources: ECMA-376, part 1, section 17; OpenDocument 1.3, part 3, sections 5 and 6.
"""

from __future__ import annotations

import copy
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

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
# The namespace of documents that Word saves as "Strict Open XML".
STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
CONTENT_TYPES = "[Content_Types].xml"
OVERRIDE = "{http://schemas.openxmlformats.org/package/2006/content-types}Override"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
# Other parts of a document that contain text.
PARTS = ("header", "footer", "footnotes", "endnotes", "comments")
# Elements that contain runs; elements that describe their parent; elements that Word regenerates.
CONTAINERS = frozenset(("hyperlink", "ins", "moveTo", "smartTag", "sdt", "customXml", "dir", "bdo"))
PROPERTIES = frozenset(("pPr", "rPr", "smartTagPr", "customXmlPr", "sdtPr", "sdtEndPr"))
PASSING = frozenset(("proofErr", "lastRenderedPageBreak", "softHyphen"))
# Invisible formatting.
UNSEEN = frozenset(("lang", "noProof"))
FIELD_TEXT = frozenset(("instrText", "delInstrText"))
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
CONTENT, STYLES, KIND = "content.xml", "styles.xml", "mimetype"
MIME_TYPE = b"application/vnd.oasis.opendocument.text"
# The most spaces that one element may represent.
MAX_SPACES = 200
# White space that counts as one space, except for single spaces: replacing each would take eight times its memory.
WHITE_SPACE = re.compile(r"[\t\r\n][ \t\r\n]*+| [ \t\r\n]++")
SPACES = re.compile(r"( {2,})")


def read_word(content: bytes) -> XmlDocument:
    """Read a document.

    Raises:
        DataError: it is not such a document, or cannot be read.
    """
    archive = Archive(content)
    types = {
        item.get("PartName", "").lstrip("/"): item.get("ContentType", "")
        for item in archive.read_xml(CONTENT_TYPES).iter(OVERRIDE)
    }
    wanted_types = {MAIN, *(MAIN.replace("document.main", part) for part in PARTS)}
    roots = {name: archive.read_xml(name) for name in archive.names if types.get(name) in wanted_types}
    tag = next((str(root.tag) for name, root in roots.items() if types[name] == MAIN), "")
    word = next((namespace for namespace in (WORD, STRICT) if tag == f"{namespace}document"), None)
    if word is None:
        raise DataError("the file is not a Word document")
    untranslated = [f"{word}{name}" for name in ("del", "moveFrom", *PROPERTIES, *PASSING)]
    return XmlDocument(archive, roots, WordDialect(word, Formats(archive)), [f"{word}p"], untranslated)


class WordDialect:
    """Reads and writes the paragraphs of Word, which consist of runs.

    Args:
        word: the namespace of the tags, `WORD` or `STRICT`.
        formats: the formats of the document.
    """

    def __init__(self, word: str, formats: Formats) -> None:
        self._word, self._formats = word, formats
        self._unseen = frozenset(f"{word}{name}" for name in UNSEEN)

    def read(self, element: etree._Element) -> ParagraphContent:
        content = ParagraphContent()
        for child in list(element.iterchildren(etree.Element)):  # pyright: ignore[reportArgumentType]
            tag = self._name(child)
            if tag in PROPERTIES or tag in PASSING:
                continue
            if tag == "r":
                content.items += self._read_run(child)
            elif tag in CONTAINERS:
                inner = child.find(f"{self._word}sdtContent") if tag == "sdt" else child
                linked = None if inner is None else LinkedContent(child, inner, self.read(inner))
                content.items.append(linked or FixedNodes((child,)))
            elif tag.endswith("Start"):
                content.before.append(child)
            elif tag.endswith("End"):
                content.after.append(child)
            else:
                content.items.append(FixedNodes((child,)))
        content.items = self._fold_fields(content.items, element)
        return content

    def write(self, text: str, text_format: TextFormat, parent: etree._Element) -> list[Node]:
        if not text:
            return []
        run = self._new_run(text_format, parent)
        node = etree.SubElement(run, f"{self._word}t")
        node.text = text
        node.set(XML_SPACE, "preserve")
        return [run]

    def fill(self, element: etree._Element, nodes: Sequence[Node]) -> None:
        properties = [child for child in element if self._name(child) in PROPERTIES]
        put(element, [*properties, *(node for node in nodes if not isinstance(node, str))])

    def _new_run(self, text_format: TextFormat, parent: etree._Element) -> etree._Element:
        """Append an empty run with a format to a paragraph, and return it."""
        run = etree.SubElement(parent, f"{self._word}r")
        if text_format.element is not None:
            self._formats.add_copy(text_format)
            run.append(copy.deepcopy(text_format.element))
        return run

    def _name(self, element: etree._Element) -> str:
        """Return the name of an element in Word's namespace, or the whole tag of any other."""
        return str(element.tag).removeprefix(self._word)

    def _read_run(self, run: etree._Element) -> list[FormattedText | FixedNodes]:
        """Return the texts of a run and its other content, with each item of the latter in a separate run."""
        properties, parent = run.find(f"{self._word}rPr"), run.getparent()
        text_format = TextFormat() if properties is None else self._formats.read(properties, unseen=self._unseen)
        children = [child for child in run.iterchildren(etree.Element) if self._name(child) not in PROPERTIES | PASSING]  # pyright: ignore[reportArgumentType]
        items: list[FormattedText | FixedNodes] = []
        for child in children:
            name = self._name(child)
            if name == "t":
                items.append(FormattedText(child.text or "", text_format))
            elif name == "noBreakHyphen":
                items.append(FormattedText("\N{NON-BREAKING HYPHEN}", text_format))
            else:
                single = run
                if len(children) > 1:
                    check_movable(child)
                    single = self._new_run(text_format, parent)
                    single.append(child)
                field = "text" if name in FIELD_TEXT else child.get(f"{self._word}fldCharType", "")
                is_separator = name in ("tab", "ptab") or (name == "br" and child.get(f"{self._word}type") is not None)
                items.append(FixedNodes((single,), text_format, is_separator, field))
        return items

    def _fold_fields(
        self, items: Sequence[FormattedText | FixedNodes | LinkedContent], parent: etree._Element
    ) -> list[FormattedText | FixedNodes | LinkedContent]:
        """Join each field (such as a page number or a reference) with the text that it displays.

        Marks of a field that extends beyond these items separate sentences.
        """
        begins, ends = list[int](), dict[int, int]()
        for number, item in enumerate(items):
            field = item.field if isinstance(item, FixedNodes) else ""
            if field == "begin":
                begins.append(number)
            elif field == "end" and begins:
                ends[begins.pop()] = number
        result: list[FormattedText | FixedNodes | LinkedContent] = []
        number = 0
        while number < len(items):
            item, end = items[number], ends.get(number)
            if end is not None:
                # including the fields within it
                item = FixedNodes(
                    tuple(node for part in items[number : end + 1] for node in self._nodes_of(part, parent))
                )
            elif isinstance(item, FixedNodes) and item.field:
                item = item._replace(is_separator=True)
            result.append(item)
            number = number + 1 if end is None else end + 1
        return result

    def _nodes_of(self, item: FormattedText | FixedNodes | LinkedContent, parent: etree._Element) -> Sequence[Node]:
        match item:
            case FormattedText():
                return self.write(item.text, item.format, parent)
            case FixedNodes():
                return item.nodes
            case LinkedContent():
                content = item.content
                inner = [node for part in content.items for node in self._nodes_of(part, item.inner)]
                self.fill(item.inner, [*content.before, *inner, *content.after])
                return [item.element]


def read_open_document(content: bytes) -> XmlDocument:
    """Read a document.

    Raises:
        DataError: it is not such a document, or cannot be read.
    """
    archive = Archive(content)
    if KIND not in archive.names or not archive.read(KIND).startswith(MIME_TYPE):
        raise DataError("the file is not an OpenDocument text")
    # headers and footers are in the styles
    roots = {name: archive.read_xml(name) for name in (CONTENT, *(name for name in archive.names if name == STYLES))}
    untranslated = [f"{TEXT}deletion", f"{TEXT}soft-page-break"]
    return XmlDocument(archive, roots, OpenDocumentDialect(Formats(archive)), [f"{TEXT}p", f"{TEXT}h"], untranslated)


class OpenDocumentDialect:
    """Reads and writes the paragraphs of OpenDocument, which consist of text and spans.

    Args:
        formats: the formats of the document.
    """

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def read(self, element: etree._Element) -> ParagraphContent:
        content = ParagraphContent()
        self._read(element, TextFormat(), content, element)
        return content

    def write(self, text: str, text_format: TextFormat, parent: etree._Element) -> list[Node]:
        nodes: list[Node] = []
        # two or more spaces are an element
        for piece in SPACES.split(text):
            if SPACES.fullmatch(piece):
                nodes.append(etree.SubElement(parent, f"{TEXT}s", {f"{TEXT}c": str(len(piece))}))
            elif piece:
                nodes.append(piece)
        return self._in_spans(nodes, text_format, parent) if nodes else []

    def fill(self, element: etree._Element, nodes: Sequence[Node]) -> None:
        put(element, [node for node in nodes if not isinstance(node, str)])
        # texts by the number of elements before them
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
            # comments are skipped; an element that is moved loses the text after it
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
        """Return nodes wrapped in the spans of a format."""
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
