"""HTML: what is translated, and what stays character by character."""

import pytest

from attent.data.units import units
from attent.markup.html import parse_html
from attent.markup.inline import AlignedText


def render(document: str) -> str:
    marked = parse_html(document)
    return marked.render([AlignedText(text.upper(), [(span, span) for span in units(text)]) for text in marked.texts])


@pytest.mark.parametrize(
    ("document", "translation"),
    [
        ('<p class="x">one</p>\n<p>two</p>', '<p class="x">ONE</p>\n<p>TWO</p>'),
        (
            "<!DOCTYPE html><html><head><style>p {}</style></head><body>x</body></html>",
            "<!DOCTYPE html><html><head><style>p {}</style></head><body>X</body></html>",
        ),
        ("a &lt;b&gt; &amp; c&nbsp;d", "A &lt;B&gt; &amp; C&nbsp;D"),
        (
            "<p translate=no>keep <b>me</b></p> this <span translate='no'>that</span>",
            "<p translate=no>keep <b>me</b></p> THIS <span translate='no'>that</span>",
        ),
        ("<pre>a\nb</pre><script>if (a < b) c();</script>x", "<pre>a\nb</pre><script>if (a < b) c();</script>X"),
        ("<!-- a <b> -->x", "<!-- a <b> -->X"),
        ("see https://a.org/b?c=d&amp;e. now", "SEE https://a.org/b?c=d&amp;e. NOW"),
        ("hello {name}, %s of %d", "HELLO {name}, %s OF %d"),
        ("<ul><li>one<li>two</ul>", "<ul><li>ONE<li>TWO</ul>"),
        ("100% sure", "100% SURE"),
        ("", ""),
        ("<br/>", "<br/>"),
        ("...", "..."),
    ],
)
def test_text_is_translated_and_nothing_else(document: str, translation: str) -> None:
    assert render(document) == translation


def test_tags_that_cross_stay_all() -> None:
    assert "".join(render("a <b>b <i>c</b> d</i> e").split()) == "A<b>B<i>C</b>D</i>E"


def test_a_line_end_within_a_sentence_is_a_space() -> None:
    marked = parse_html("<p>\n  Two men\n  are <b>talking\n now</b>.\n</p>\n")
    assert marked.texts == ["Two men are talking now."]
    assert marked.render([AlignedText("Zwei", [])]) == "<p>\n  <b></b>Zwei\n</p>\n"
