"""Documents of word processors: read again by python-docx and odfdo."""

from __future__ import annotations

import io
import zipfile

import pytest

from attent.documents.inline import AlignedText
from attent.documents.word_processors import CONTENT_TYPES, MAIN, STRICT, TEXT, WORD, read_open_document, read_word
from attent.documents.xml_lines import XmlDocument
from attent.errors import DataError

PACKAGE = "http://schemas.openxmlformats.org/package/2006/content-types"
BODY = '<w:document xmlns:w="%s"><w:body>%s</w:body></w:document>'


def word_document(body: str, namespace: str = WORD) -> bytes:
    override = f'<Override PartName="/word/document.xml" ContentType="{MAIN}"/>'
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(CONTENT_TYPES, f'<Types xmlns="{PACKAGE}">{override}</Types>')
        file.writestr("word/document.xml", BODY % (namespace[1:-1], body))
        file.writestr("word/media/image1.png", b"\x89PNG")
    return stream.getvalue()


def body_of(content: bytes) -> str:
    text = zipfile.ZipFile(io.BytesIO(content)).read("word/document.xml").decode()
    return text.partition("<w:body>")[2].partition("</w:body>")[0].replace(' xml:space="preserve"', "")


def test_formats_follow_their_words_and_structure_stays(translate, word_file: bytes) -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document(io.BytesIO(translate(word_file, ".docx")))
    before = docx.Document(io.BytesIO(word_file))
    heading, item, dots = document.paragraphs
    assert (heading.text, heading.style.name) == ("TITLE BIG", "Heading 1")
    assert [(run.text, run.bold) for run in item.runs if run.text.strip()] == [
        ("RUNS DOG ", None),
        ("BLACK", True),
        (" A", None),
        ("COLUMN SECOND", None),
    ]
    assert (item.text, item.style.name) == ("RUNS DOG BLACK A\tCOLUMN SECOND", "List Number")
    assert dots.text == "..."
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["CELL LEFT", "12"]
    assert document.sections[0].header.paragraphs[0].text == "HEADER PAGE"
    names, names_before = ([part.partname for part in file.part.package.iter_parts()] for file in (document, before))
    assert names == names_before


@pytest.mark.parametrize(
    ("paragraph", "translation"),
    [
        # a link keeps its place in the relationships, and its own format
        (
            (
                '<w:r><w:t>see </w:t></w:r><w:hyperlink w:id="r1"><w:r><w:rPr><w:u/></w:rPr><w:t>this page</w:t></w:r>'
                "</w:hyperlink>"
            ),
            (
                '<w:hyperlink w:id="r1"><w:r><w:rPr><w:u/></w:rPr><w:t>PAGE THIS</w:t></w:r></w:hyperlink><w:r><w:t> '
                "SEE</w:t></w:r>"
            ),
        ),
        # a field is moved as a whole
        (
            '<w:r><w:t>on </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>PAGE</w:instrText></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>',
            '<w:r><w:t>ON </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>PAGE</w:instrText></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>',
        ),
        # one that ends elsewhere parts the text
        (
            '<w:r><w:t>one two</w:t><w:fldChar w:fldCharType="end"/><w:t>three four</w:t></w:r>',
            '<w:r><w:t>TWO ONE</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t>FOUR THREE</w:t></w:r>',
        ),
        # bookmarks stay around the text, a note's sign with its word
        (
            '<w:bookmarkStart w:id="1"/><w:r><w:t>one</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
            '<w:bookmarkEnd w:id="1"/>'
            "<w:r><w:t> two</w:t></w:r>",
            (
                '<w:bookmarkStart w:id="1"/><w:r><w:t>TWO ONE</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
                '<w:bookmarkEnd w:id="1"/>'
            ),
        ),
        # of formats that are the same but for the language the checker reads
        (
            (
                '<w:r><w:rPr><w:lang w:val="en"/></w:rPr><w:t>one </w:t></w:r><w:proofErr/><w:r><w:t>{name} two &amp; '
                "three</w:t></w:r>"
            ),
            "<w:r><w:t>THREE &amp; {name} TWO ONE</w:t></w:r>",
        ),
        ("<w:r><w:t>1 </w:t></w:r><w:del><w:r><w:delText>old</w:delText></w:r></w:del>", None),
        ("<w:pPr><w:jc/></w:pPr><w:r><w:drawing/></w:r><w:r><w:t>...</w:t></w:r>", None),
    ],
)
def test_what_a_paragraph_holds_stays_in_it(translate, paragraph: str, translation: str | None) -> None:
    result = body_of(translate(word_document(f"<w:p>{paragraph}</w:p>"), ".docx"))
    if translation is None:
        assert result.startswith("<w:p>") and sorted(result) == sorted(f"<w:p>{paragraph}</w:p>")
    else:
        assert result.replace('<w:rPr><w:lang w:val="en"/></w:rPr>', "") == f"<w:p>{translation}</w:p>"


def test_text_in_a_picture_s_box_is_translated_once_unless_it_is_deleted(translate) -> None:
    box = "<w:pict><w:txbxContent><w:p><w:r><w:t>in box</w:t></w:r></w:p></w:txbxContent></w:pict>"
    result = body_of(translate(word_document(f"<w:p><w:r><w:t>one </w:t>{box}</w:r></w:p>"), ".docx"))
    assert result.count("BOX IN") == 1 and result.count("ONE") == 1 and "<w:pict><w:txbxContent><w:p>" in result
    deleted = f"<w:p><w:r><w:t>one</w:t></w:r><w:del><w:r>{box}</w:r></w:del></w:p>"
    assert "in box" in body_of(translate(word_document(deleted), ".docx"))


def test_strict_documents_are_translated_in_their_own_namespace(translate) -> None:
    paragraph = (
        '<w:p><w:r><w:t>one </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>two</w:t><w:br w:type="page"/></w:r></w:p>'
    )
    strict, ordinary = (translate(word_document(paragraph, namespace), ".docx") for namespace in (STRICT, WORD))
    assert "<w:t>TWO</w:t>" in body_of(strict) and body_of(strict) == body_of(ordinary)


def test_other_entries_and_control_characters(translate) -> None:
    document = read_word(word_document("<w:p><w:r><w:t>one</w:t></w:r></w:p>"))
    assert isinstance(document, XmlDocument)
    result = document.render([AlignedText("a\x01\ud800<b>", ())])
    assert "a&lt;b&gt;" in body_of(result)
    assert zipfile.ZipFile(io.BytesIO(result)).read("word/media/image1.png") == b"\x89PNG"


ROOT = f'<office xmlns:text="{TEXT[1:-1]}">%s</office>'


def open_document(body: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        file.writestr("content.xml", ROOT % body)
    return stream.getvalue()


def content_of(content: bytes) -> str:
    text = zipfile.ZipFile(io.BytesIO(content)).read("content.xml").decode()
    return text.partition('">')[2].removesuffix("</office>")


def test_formats_of_open_document_follow_their_words(translate, open_document_file: bytes) -> None:
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
def test_what_a_paragraph_of_open_document_holds_stays_in_it(
    translate, paragraph: str, translation: str | None
) -> None:
    result = content_of(translate(open_document(f"<text:p>{paragraph}</text:p>"), ".odt"))
    if translation is None:
        assert sorted(result.lower()) == sorted(f"<text:p>{paragraph}</text:p>".lower())
    else:
        assert result == f"<text:p>{translation}</text:p>"


def test_deleted_passages_of_open_document_stay(translate) -> None:
    deleted = "<text:changed-region><text:deletion><text:p>old words</text:p></text:deletion></text:changed-region>"
    deleted = f"<text:tracked-changes>{deleted}</text:tracked-changes>"
    result = content_of(translate(open_document(f"{deleted}<text:p>one two</text:p>"), ".odt"))
    assert result == f"{deleted}<text:p>TWO ONE</text:p>"


def test_files_of_other_kinds_are_refused(word_file: bytes, open_document_file: bytes) -> None:
    for content in (open_document_file, b"", b"PK\x05\x06", word_document("", "{http://example.org/}")):
        with pytest.raises(DataError):
            read_word(content)
    for content in (word_file, b"", b"text"):
        with pytest.raises(DataError):
            read_open_document(content)
