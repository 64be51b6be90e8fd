"""Markdown: what is translated, and what stays character by character."""

import pytest

from attent.data.units import Span, units
from attent.markup.inline import AlignedText
from attent.markup.markdown import parse_markdown

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
    ],
)
def test_text_is_translated_and_nothing_else(document: str, translation: str) -> None:
    assert translate(document) == translation


def translate_same(document: str) -> str:
    marked = parse_markdown(document)
    return marked.render([AlignedText(text, [(span, span) for span in units(text)]) for text in marked.texts])


def test_a_page_of_its_own_translation_is_the_same_page() -> None:
    assert translate_same(PAGE) == PAGE


@pytest.mark.parametrize(
    ("document", "translation"),
    [("x *y* z", "X Z"), ("x **y _y_** z", "X Z"), ("x ~~y~~ z", "X Z"), ("x [*y*](u) z", "X [](u)Z"), ("x **y `c`** z", "X `c` Z")],
)
def test_emphasis_without_counterpart_goes_and_links_stay(document: str, translation: str) -> None:
    marked = parse_markdown(document)
    end = len(marked.texts[0])
    assert marked.render([AlignedText("X Z", [(Span(0, 1), Span(0, 1)), (Span(end - 1, end), Span(2, 3))])]) == translation


def test_emphasis_within_a_word_stays_where_it_comes_out_as_it_was() -> None:
    assert translate_same("a**b**c and *d e*f") == "a**b**c and *d e*f"


def test_emphasis_and_links_of_code_alone_stay() -> None:
    document = "see **`a` `b`** and [*`c`*](u) now"
    assert translate_same(document) == document
