"""HTML: what is translated, and what stays character by character."""

import pytest

from attent.documents.html import parse_html
from attent.documents.inline import AlignedText, Element, cut_placeholders
from attent.text.units import units


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
        # what begins like a tag, a comment or a declaration, and ends elsewhere or nowhere
        ("a < b and c > d", "A &lt; B AND C &gt; D"),
        ("<p>a <b", "<p>A &lt;B"),
        ("<p title='a > b'>c</p>", "<p title='a > b'>C</p>"),
        ('<a href="x>b</a> c', '<a href="x>B</a> C'),
        ("<a href=b/>c</a>", "<a href=b/>C</a>"),
        ("<!--a--!>b<!--->c<!-->d", "<!--a--!>B<!--->C<!-->D"),
        ("<!-- a <p>b</p>", "<!-- a <p>b</p>"),
        ("<![CDATA[a>b]]>c", "<![CDATA[a>b]]>C"),
        ("<![CDATA[a>b", "<![CDATA[a>B"),
        ("<![if !IE]>a<![endif]>", "<![if !IE]>A<![endif]>"),
        ("<?php a ?>b</>c</1>d", "<?php a ?>B</>C</1>D"),
        ("<SCRIPT>if (a</b>c)</script >d", "<SCRIPT>if (a</b>c)</script >D"),
        ("<p title='translate=no'>a <i TRANSLATE = NO>b</i>", "<p title='translate=no'>A <i TRANSLATE = NO>b</i>"),
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


@pytest.mark.parametrize(
    "placeholder",
    [
        "{{ name }}",
        *["{name}", "${user.name}", "{0:.2f}", "%s", "%(count)d", "%1$s", "%05.2f", "https://a.org/b?c=d", "a.b@c.org"],
    ],
)
def test_a_placeholder_is_cut_out(placeholder: str) -> None:
    assert cut_placeholders(f"see {placeholder} now") == ["see ", Element(placeholder), " now"]


@pytest.mark.parametrize("text", ["100% sure", "a {b", "50 %", "me@home"])
def test_other_text_stays(text: str) -> None:
    assert cut_placeholders(text) == [text]
