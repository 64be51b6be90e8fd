"""Texts of OpenDocument: read again by odfdo."""

from __future__ import annotations

import io
import zipfile

import pytest

from attent.documents.word_processors import TEXT, read_open_document
from attent.errors import DataError

ROOT = f'<office xmlns:text="{TEXT[1:-1]}">%s</office>'


def open_document(body: str) -> bytes:
    """Return the smallest document with these paragraphs."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        file.writestr("content.xml", ROOT % body)
    return stream.getvalue()


def body_of(content: bytes) -> str:
    text = zipfile.ZipFile(io.BytesIO(content)).read("content.xml").decode()
    return text.partition('">')[2].removesuffix("</office>")


def test_formats_follow_their_words_and_structure_stays(translate, open_document_file: bytes) -> None:
    odfdo = pytest.importorskip("odfdo")
    content = translate(open_document_file, ".odt")
    body = odfdo.Document(io.BytesIO(content)).body
    assert [header.text_recursive for header in body.headers] == ["TITLE BIG"]
    paragraph = body.get_paragraphs()[0]
    assert paragraph.text_recursive == "NOW [RUNS](https://example.org/) DOG BLACK A"
    assert [(span.style, span.text) for span in paragraph.spans] == [("Strong", "BLACK")]
    assert [(link.url, link.text) for link in paragraph.get_links()] == [("https://example.org/", "RUNS")]
    assert "NOTE SMALL" in body.get_notes()[0].text_recursive
    assert [item.text_recursive.strip() for item in body.lists[0].get_elements("text:list-item")] == ["ITEM FIRST"]
    # the type stays first, and is not packed
    first = zipfile.ZipFile(io.BytesIO(content)).infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


@pytest.mark.parametrize(
    ("paragraph", "translation"),
    [
        # LibreOffice's spans without a reason: the one that most of the text has is the paragraph's
        (
            '<text:span text:style-name="T1">one two </text:span><text:span text:style-name="T2">three</text:span>',
            '<text:span text:style-name="T2">THREE</text:span><text:span text:style-name="T1"> TWO ONE</text:span>',
        ),
        ("one<text:line-break/>two", "TWO ONE<text:line-break/>"),
        ("one two<text:tab/>three four", "TWO ONE<text:tab/>FOUR THREE"),
        ('<text:bookmark-start text:name="x"/>one<text:bookmark-end text:name="x"/>', None),
        ("one\n  two", "TWO ONE"),
        ('<text:s text:c="4"/>one', '<text:s text:c="4"/>ONE'),
        ('<text:s text:c="99999999"/>one', '<text:s text:c="200"/>ONE'),
        ('one <text:a text:href="y">two <text:span text:style-name="B">three</text:span></text:a>', None),
    ],
)
def test_what_a_paragraph_holds_stays_in_it(translate, paragraph: str, translation: str | None) -> None:
    result = body_of(translate(open_document(f"<text:p>{paragraph}</text:p>"), ".odt"))
    if translation is None:
        assert sorted(result.lower()) == sorted(f"<text:p>{paragraph}</text:p>".lower())
    else:
        assert result == f"<text:p>{translation}</text:p>"


def test_deleted_passages_stay(translate) -> None:
    deleted = "<text:changed-region><text:deletion><text:p>old words</text:p></text:deletion></text:changed-region>"
    deleted = f"<text:tracked-changes>{deleted}</text:tracked-changes>"
    assert (
        body_of(translate(open_document(f"{deleted}<text:p>one two</text:p>"), ".odt"))
        == f"{deleted}<text:p>TWO ONE</text:p>"
    )


def test_what_is_none_is_said(word_file: bytes) -> None:
    for content in (word_file, b"", b"text"):
        with pytest.raises(DataError):
            read_open_document(content)
