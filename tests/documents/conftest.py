"""Translations whose words are known, and files written by other libraries."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from attent.documents import read_document
from attent.documents.inline import AlignedText
from attent.text.units import Span, units

Translate = Callable[[bytes, str], bytes]


def reverse(text: str) -> AlignedText:
    """Return the words in capitals and the other way round, with exact links."""
    translation, links = text[: len(text) - len(text.lstrip())], []
    for unit in reversed(units(text)):
        begin = len(translation)
        translation += text[unit.begin : unit.end].upper()
        links.append((unit, Span(begin, len(translation))))
        translation += " "
    return AlignedText(translation.rstrip() + text[len(text.rstrip()) :], links)


@pytest.fixture
def translate() -> Translate:
    def translate(content: bytes, ending: str) -> bytes:
        document = read_document(content, ending)
        return document.render([reverse(line.text) for line in document.lines])

    return translate


@pytest.fixture
def word_file() -> bytes:
    """A document of python-docx with formats, a table, a header, a field and a picture's place."""
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("big title", 1)
    paragraph = document.add_paragraph("a ", style="List Number")
    paragraph.add_run("black").bold = True
    paragraph.add_run(" dog")
    # cut as Word cuts: without a reason that is seen
    paragraph.add_run(" ru")
    paragraph.add_run("ns")
    paragraph.add_run("\tsecond column")
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left cell", "12"
    document.sections[0].header.paragraphs[0].text = "page header"
    document.add_paragraph("...")
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


@pytest.fixture
def open_document_file() -> bytes:
    """A text of odfdo with a span, a link, a note, spaces and a list."""
    odfdo = pytest.importorskip("odfdo")
    document = odfdo.Document("text")
    document.body.clear()
    document.body.append(odfdo.Header(1, "big title"))
    paragraph = odfdo.Paragraph("a black dog runs now")
    paragraph.set_span("Strong", regex="black")
    paragraph.set_link("https://example.org/", regex="runs")
    document.body.append(paragraph)
    note = odfdo.Paragraph("two men")
    note.insert_note(after="two", note_id="note0", citation="1", body="small note")
    document.body.append(note)
    document.body.append(odfdo.List(["first item"]))
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()
