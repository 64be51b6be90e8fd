"""Texts that were made to be slow, deep or broken: each is read within moments, or refused in a line."""

from __future__ import annotations

import time
from html import unescape

import pytest

from attent.documents import parse_subtitles
from attent.documents.html import parse_html
from attent.documents.inline import AlignedText, cut_line
from attent.documents.markdown import parse_markdown
from attent.errors import DataError
from attent.text.units import units

PARSERS = {"html": parse_html, "markdown": parse_markdown, "subtitles": parse_subtitles}
# Pieces that readers of markup have been slow on, many times over.
SLOW = {
    "html": ("<b>a</b> ", "<a ", "<a '", "<!--", "<code>", "</i><b>", "&a", "<", "<!-- > ", "<script></", "<br>a"),
    "markdown": (
        *("*a ", "[a", "`a", "![", "<a", "<!--", "- ", "  ", " #", "|", "| a", "{", "a](", '[a]("', "`"),
        *("> ", "- a\n", "> a\n\n", "&amp;", "[a]: '"),
    ),
}


@pytest.mark.parametrize(("kind", "piece"), [(kind, piece) for kind, pieces in SLOW.items() for piece in pieces])
def test_what_repeats_takes_time_in_proportion(kind: str, piece: str) -> None:
    document = piece * (16_000 // len(piece)) + "x"
    begin = time.process_time()
    marked = PARSERS[kind](document)
    result = marked.render([AlignedText(text, [(span, span) for span in units(text)]) for text in marked.texts])
    # quadratic readers took from ten seconds to minutes
    assert time.process_time() - begin < 5
    assert unescape("".join(result.split())) == unescape("".join(document.split()))


@pytest.mark.parametrize(("kind", "piece"), [("html", " "), ("html", "\n"), ("subtitles", "\t"), ("subtitles", " \n")])
def test_white_space_takes_time_in_proportion(kind: str, piece: str) -> None:
    document = f"<p>a{piece * (500_000 // len(piece))}b</p>"
    begin = time.process_time()
    marked = PARSERS[kind](document)
    # it took hours
    assert time.process_time() - begin < 5
    assert "".join(marked.render([AlignedText(text, ()) for text in marked.texts]).split()) == "<p>ab</p>"


@pytest.mark.parametrize(
    ("kind", "document", "problem"),
    [
        ("html", "<b>" * 51 + "a" + "</b>" * 51, "nested at most 50 deep"),
        ("html", "<b>" + "<i>a</i> " * 2_000 + "</b>", "at most 2,000 tags"),
        ("html", "a <![x[ b>", "not HTML"),
        ("markdown", "---\n---\n" + "a " * 10_001, "line 3 has 20,002 characters, more than 20,000"),
    ],
)
def test_too_much_is_refused_in_a_line(kind: str, document: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as refused:
        PARSERS[kind](document)
    assert "\n" not in str(refused.value)


def test_a_long_line_is_cut_between_its_elements() -> None:
    marked = parse_html("<p>" + '<a href="x">a</a> ' * 200 + "</p>")
    assert 1 < len(marked.lines) < 10
    assert [len(cut_line(line)) for line in marked.lines] == [1] * len(marked.lines)
