"""Word's documents (.docx): text in runs, each with its own format. Source: ECMA-376, part 1, section 17."""

from __future__ import annotations

import copy
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
# The same of documents that Word saves as "Strict Open XML".
STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
CONTENT_TYPES = "[Content_Types].xml"
OVERRIDE = "{http://schemas.openxmlformats.org/package/2006/content-types}Override"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
# Parts of a document that have text besides the main one.
PARTS = ("header", "footer", "footnotes", "endnotes", "comments")
# Elements with runs of their own; those that only say something of their parent; those that are made anew by Word.
CONTAINERS = frozenset(("hyperlink", "ins", "moveTo", "smartTag", "sdt", "customXml", "dir", "bdo"))
PROPERTIES = frozenset(("pPr", "rPr", "smartTagPr", "customXmlPr", "sdtPr", "sdtEndPr"))
PASSING = frozenset(("proofErr", "lastRenderedPageBreak", "softHyphen"))
# Format that is not seen.
UNSEEN = frozenset(("lang", "noProof"))
FIELD_TEXT = frozenset(("instrText", "delInstrText"))


def read_word(content: bytes) -> XmlDocument:
    """Read a document.

    Raises:
        DataError: it is none, or cannot be read.
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
        raise DataError("the file is no document of Word's")
    untranslated = [f"{word}{name}" for name in ("del", "moveFrom", *PROPERTIES, *PASSING)]
    return XmlDocument(archive, roots, WordDialect(word, Formats(archive)), [f"{word}p"], untranslated)


class WordDialect:
    """Paragraphs of runs.

    Args:
        word: the namespace of their tags, `WORD` or `STRICT`.
        formats: of the document.
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
        """Return an empty run of a format, the last one of a paragraph."""
        run = etree.SubElement(parent, f"{self._word}r")
        if text_format.element is not None:
            self._formats.add_copy(text_format)
            run.append(copy.deepcopy(text_format.element))
        return run

    def _name(self, element: etree._Element) -> str:
        """Return the name of an element of Word's, and the whole tag of another."""
        return str(element.tag).removeprefix(self._word)

    def _read_run(self, run: etree._Element) -> list[FormattedText | FixedNodes]:
        """Return the texts of a run, and everything else in it, each in a run of its own."""
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
                field = (
                    child.get(f"{self._word}fldCharType", "")
                    if name == "fldChar"
                    else "text"
                    if name in FIELD_TEXT
                    else ""
                )
                is_separator = name in ("tab", "ptab") or (name == "br" and child.get(f"{self._word}type") is not None)
                items.append(FixedNodes((single,), text_format, is_separator, field))
        return items

    def _fold_fields(
        self, items: Sequence[FormattedText | FixedNodes | LinkedContent], parent: etree._Element
    ) -> list[FormattedText | FixedNodes | LinkedContent]:
        """Make one of each field (a page's number, a reference) with what it shows.

        Marks of one that goes on elsewhere part sentences.
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
                # with those within it
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
