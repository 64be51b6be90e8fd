"""Markdown: what is translated, and what stays character by character."""

import pytest

from attent.documents.inline import AlignedText
from attent.documents.markdown import parse_markdown
from attent.text.units import Span, units

PAGE = """---
title: page
---
# A *big* dog ##

> - [ ] read [the **book**](http://x.y "t") now, `code` and ![p](a.png)
1. one_two_three * four

| a | b **c** |
|---|:--|
| d \\| e | `f|g` h |

```
code here
```
    indented
last line\x20\x20
<div class="x">
"""


def translate(document: str) -> str:
    marked = parse_markdown(document)
    return marked.render([AlignedText(text.upper(), [(span, span) for span in units(text)]) for text in marked.texts])


@pytest.mark.parametrize(
    ("document", "translation"),
    [
        ("# A *big* dog ##", "# A *BIG* DOG ##"),
        ("- [x] read [the **book**](http://x.y) now", "- [x] READ [THE **BOOK**](http://x.y) NOW"),
        ("run `make test` or ``a`b``", "RUN `make test` OR ``a`b``"),
        ("| a | b |\n|---|---|\n", "| A | B |\n|---|---|\n"),
        ("```\nx\n```\ny", "```\nx\n```\nY"),
        ("snake_case_name * 2", "SNAKE_CASE_NAME * 2"),
        ("a<br>b <https://a.b>", "A<br>B <https://a.b>"),
        ("[ref]: http://a.b\n", "[ref]: http://a.b\n"),
        ("line\\\nnext  \n", "LINE\\\nNEXT  \n"),
        # text in lists and after a paragraph, indented as code is elsewhere
        ("- one\n    - two\n        - three\n", "- ONE\n    - TWO\n        - THREE\n"),
        ("* one\n\n    two\n", "* ONE\n\n    TWO\n"),
        ("1. one\n\n\t- two\n", "1. ONE\n\n\t- TWO\n"),
        ("one\n    two\n\n    code\n", "ONE\n    TWO\n\n    code\n"),
        ("- one\n\n      code\n\n> ```\n> code\n> ```\n", "- ONE\n\n      code\n\n> ```\n> code\n> ```\n"),
        (">   - > one\n[^1]: a note\n", ">   - > ONE\n[^1]: A NOTE\n"),
        # blocks of HTML
        ("<!-- one\n\ntwo -->\nthree", "<!-- one\n\ntwo -->\nTHREE"),
        ("<pre>\n*one*\n\ntwo\n</pre>\nthree", "<pre>\n*one*\n\ntwo\n</pre>\nTHREE"),
        ("<script>\nvar x;\n</script>\n", "<script>\nvar x;\n</script>\n"),
        ('<table\n class="x">\none\n\ntwo', '<table\n class="x">\none\n\nTWO'),
        # matter before the text, and a rule
        ("---\na: b\n...\none", "---\na: b\n...\nONE"),
        ("---\r\na: b\r\n---\r\none", "---\r\na: b\r\n---\r\nONE"),
        ("---\none\n", "---\nONE\n"),
        # entities and what needs none
        ("AT&T has a < b and c > d & e", "AT&T HAS A < B AND C > D & E"),
        ("fish &amp; chips &copy; &eacute;&#233;", "FISH & CHIPS © ÉÉ"),
        ("a &lt;b&gt; &amp;lt; c", "A &lt;B&gt; &amp;LT; C"),
        ("a &#42;b&#42; &foo; &ltx;&nbsp;c", "A &#42;B&#42; &FOO; &LTX;&nbsp;C"),
        ("| a `b|c` | d &#124; e |", "| A `b|c` | D &#124; E |"),
    ],
)
def test_text_is_translated_and_nothing_else(document: str, translation: str) -> None:
    assert translate(document) == translation


def translate_same(document: str) -> str:
    marked = parse_markdown(document)
    return marked.render([AlignedText(text, [(span, span) for span in units(text)]) for text in marked.texts])


@pytest.mark.parametrize("document", [PAGE, "a**b**c and *d e*f", "see **`a` `b`** and [*`c`*](u) now"])
def test_a_document_of_its_own_translation_is_the_same_document(document: str) -> None:
    assert translate_same(document) == document


@pytest.mark.parametrize(
    ("document", "translation"),
    [
        ("x *y* z", "X Z"),
        ("x **y _y_** z", "X Z"),
        ("x ~~y~~ z", "X Z"),
        ("x [*y*](u) z", "X [](u)Z"),
        ("x **y `c`** z", "X `c` Z"),
    ],
)
def test_emphasis_without_counterpart_goes_and_links_stay(document: str, translation: str) -> None:
    marked = parse_markdown(document)
    end = len(marked.texts[0])
    links = [(Span(0, 1), Span(0, 1)), (Span(end - 1, end), Span(2, 3))]
    assert marked.render([AlignedText("X Z", links)]) == translation
