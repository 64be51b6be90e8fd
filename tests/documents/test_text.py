"""Files of text: their encoding, and formats by the ending of a name."""

from __future__ import annotations

import pytest

from attent import documents
from attent.documents import FORMATS, TextDocument, parse_subtitles, parse_text, read_document
from attent.documents.inline import untranslated
from attent.errors import DataError, UnknownNameError

SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
one two
three

2
00:00:03,000 --> 00:00:04,000 X1:40
- <i>four</i> five
- six

"""


@pytest.mark.parametrize(
    ("ending", "content", "translation"),
    [
        (".txt", "one two\r\n\n... <b> & c", "TWO ONE\r\n\nC & > B < . . ."),
        (".html", "<p>one <b>two</b></p>\n", "<p><b>TWO</b> ONE</p>\n"),
        (".md", "# one **two**\n", "# **TWO** ONE\n"),
    ],
)
def test_formats(translate, ending: str, content: str, translation: str) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert translate(content.encode(encoding), ending).decode(encoding) == translation


def test_subtitles_keep_numbers_and_times(translate) -> None:
    srt = pytest.importorskip("srt")
    result = translate(SUBTITLES.encode(), ".srt").decode()
    cues, before = list(srt.parse(result)), list(srt.parse(SUBTITLES))
    assert [(cue.index, cue.start, cue.end, cue.proprietary) for cue in cues] == [
        (cue.index, cue.start, cue.end, cue.proprietary) for cue in before
    ]
    assert [cue.content.split("\n") for cue in cues] == [["THREE TWO", "ONE"], ["FIVE <i>FOUR</i> -", "SIX -"]]


def test_files_that_are_no_text_or_of_an_unknown_format_are_refused() -> None:
    for content, problem in ((b"a \xff b", "not UTF-8: invalid start byte at byte 2"), (b"a\0b", "zero bytes")):
        with pytest.raises(DataError, match=problem):
            TextDocument(content, parse_text)
    with pytest.raises(UnknownNameError, match=r"unknown document '\.pdf'"):
        read_document(b"", ".pdf")
    assert [*FORMATS] == [".txt", ".html", ".md", ".srt", ".docx", ".odt"]


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        (".txt", "a\n" * 9),
        (".txt", "a\u2028" * 9),
        (".html", "<b>a</b>" * 5),
        (".html", "&a" * 9),
        (".md", "*a* " * 5),
        (".md", "|a" * 9),
        (".srt", "%s" * 9),
    ],
)
def test_a_document_of_too_many_parts_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch, ending: str, content: str
) -> None:
    monkeypatch.setattr(documents, "MAX_PARTS", 8)
    with pytest.raises(DataError, match="at most 8 lines, tags and other marks: split it into several"):
        read_document(content.encode(), ending)
    read_document(b"a\n" * 8, ending)


def test_a_line_of_too_many_characters_around_tags_is_refused() -> None:
    long = "a" * 100_000
    assert len(read_document(long.encode() * 2, ".html").lines) == 1
    with pytest.raises(DataError, match="with tags may have at most 100,000 characters"):
        read_document(f"<b>a</b> {long}".encode(), ".html")


CUES = (
    "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>one</i> two\nthree\n\n",
    "1\r\n0:0:1.5 --> 0:0:2.5\r\n- one\r\n- two & <three>\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n\r\n",
    # no blank line between them, and none at the end
    "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:02,000 --> 00:00:03,000\n<b>two",
    "no cue at all\n\n1\n",
    "",
)


@pytest.mark.parametrize("text", CUES)
def test_its_own_translation_is_the_same_file(text: str) -> None:
    for parse in (parse_subtitles, parse_text):
        marked = parse(text)
        assert marked.render(map(untranslated, marked.texts)) == text


def test_cues_are_lines_and_nothing_else_is() -> None:
    texts = [text for cues in CUES for text in parse_subtitles(cues).texts]
    assert texts == ["one two three", "- one", "- two & <three>", "one", "two"]
