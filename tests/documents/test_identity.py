"""A document with its own text as the translation is the same document, byte by byte, white space included."""

from __future__ import annotations

import io
import re
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attent.documents.html import parse_html
from attent.documents.inline import AlignedText, untranslated
from attent.documents.markdown import parse_markdown
from attent.documents.word_processors import CONTENT_TYPES, MAIN, WORD, read_word
from attent.text.units import Span

WORDS = ["a", "cat", "x, y", "!", "3.5", "\u00e9t\u00e9", "*", "...", "n't", "\u65e5\u672c", "\u3001"]
SPACES = ["", " ", "  "]


def html(content: str) -> str:
    marked = parse_html(content)
    return marked.render(map(untranslated, marked.texts))


def markdown(content: str) -> str:
    marked = parse_markdown(content)
    return marked.render(map(untranslated, marked.texts))


@pytest.mark.parametrize(
    "document",
    [
        "<p><u>a <code>b</code></u> c</p>",
        "<p>cat <b>&nbsp;z</b> w</p>",
        "<p>a  <br>  b</p>",
        "<p>a<b> </b>b <i> c </i> d</p>",
        "<p>one <code>!</code><code>?</code>two</p>",
        "<p><b>a<br></b> <i></i> c</p>",
        "<p>H<sub>2</sub>O {name}x</p>",
    ],
)
def test_white_space_of_html_stays(document: str) -> None:
    assert html(document) == document


@pytest.mark.parametrize(
    "document", ["x y \\*  z\n", "a  `b`  c\n", "**b c** x!a_b  ~~d~~  a\n", "<http://a.b>  [l](u)\n"]
)
def test_white_space_of_markdown_stays(document: str) -> None:
    assert markdown(document) == document


def test_white_space_stays_around_words_that_are_translated() -> None:
    marked = parse_html("<p><u>cat <code>b</code></u> runs  <br> on</p>")
    text, links = untranslated(marked.texts[0])
    shift = len("horse") - len("cat")
    moved = [(source, Span(target.begin + shift * (target.begin > 0), target.end + shift)) for source, target in links]
    translation = AlignedText(text.replace("cat", "horse"), moved)
    assert marked.render([translation]) == "<p><u>horse <code>b</code></u> runs  <br> on</p>"


@st.composite
def lines_of_html(draw: st.DrawFn) -> str:
    """Lines of nested elements, empty ones included, with points and white space anywhere."""

    def content(depth: int) -> str:
        pieces: list[str] = []
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.integers(0, 4))
            if kind <= 1 or depth == 3:
                pieces.append(draw(st.sampled_from([*WORDS, "&nbsp;", "&amp;"])))
            elif kind == 2:
                pieces.append(draw(st.sampled_from(["<br>", "<code>b</code>", "{name}", "<!-- n -->", "http://a.b/c"])))
            else:
                name = draw(st.sampled_from(["b", "i", "a", "span"]))
                pieces.append(f"<{name}>{content(depth + 1)}</{name}>")
            pieces.append(draw(st.sampled_from(SPACES)))
        return "".join(pieces)

    return f"<p>{content(0)}</p>"


@given(lines_of_html())
@settings(max_examples=200)
def test_any_line_of_html_stays(document: str) -> None:
    assert html(document) == document


MARKS = [
    *("*a*", "**b c**", "a **b**", "`c`", "\\*", "[l](u)", "[*l* m](u)", "![i](p)", "<br>", "{n}", "&nbsp;", "a_b"),
    *("~~d~~", "<http://a.b>"),
]


@given(st.lists(st.tuples(st.sampled_from([*WORDS, *MARKS]), st.sampled_from(SPACES)), min_size=1, max_size=8))
@settings(max_examples=300)
def test_any_line_of_markdown_stays(pieces: list[tuple[str, str]]) -> None:
    document = "".join(map("".join, pieces)) + "\n"
    assert markdown(document) == document


FORMATS = st.sampled_from(["", "", "<w:rPr><w:b/></w:rPr>", "<w:rPr><w:i/></w:rPr>"])
TEXTS = st.builds(
    lambda *parts: f'<w:t xml:space="preserve">{"".join(parts)}</w:t>',
    *(map(st.sampled_from, (SPACES, [*WORDS, ""], SPACES))),
)
THINGS = st.sampled_from(["<w:br/>", "<w:tab/>", "<w:footnoteReference/>", "<w:drawing/>"])
CONTENT = st.lists(TEXTS | TEXTS | THINGS, min_size=1, max_size=3)
RUNS = st.builds(lambda text_format, content: f"<w:r>{text_format}{''.join(content)}</w:r>", FORMATS, CONTENT)
LINKS = st.builds(lambda runs: f"<w:hyperlink>{''.join(runs)}</w:hyperlink>", st.lists(RUNS, max_size=2))


def things(xml: str) -> str:
    """Return the text of a paragraph, with what is no text by its name."""
    return re.sub("<[^>]*>", "", re.sub(r"<w:(br|tab|footnoteReference|drawing)/>", r"[\1]", xml))


@given(st.lists(RUNS | RUNS | LINKS, min_size=1, max_size=6))
@settings(max_examples=120)
def test_any_paragraph_of_word_keeps_its_text(content: list[str]) -> None:
    paragraph = f"<w:p>{''.join(content)}</w:p>"
    types = (
        '<Override xmlns="http://schemas.openxmlformats.org/package/2006/content-types" PartName="/d.xml" '
        f'ContentType="{MAIN}"/>'
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr(CONTENT_TYPES, types)
        file.writestr("d.xml", f'<w:document xmlns:w="{WORD[1:-1]}">{paragraph}</w:document>')
    document = read_word(stream.getvalue())
    result = document.render([untranslated(line.text) for line in document.lines])
    xml = zipfile.ZipFile(io.BytesIO(result)).read("d.xml").decode()
    assert things(xml.partition("?>")[2].strip()) == things(paragraph)
