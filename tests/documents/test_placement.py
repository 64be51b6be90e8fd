"""Tags around the words that are linked to their own: none lost, none doubled, nested as they were."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.documents.html import parse_html
from attent.documents.inline import AlignedText
from attent.text.units import Span, units

NAMES = ("b", "i", "a", "span")


def same(text: str) -> AlignedText:
    return AlignedText(text, [(span, span) for span in units(text)])


def permuted(text: str, order: list[int]) -> AlignedText:
    """Return the words in another order, with exact links."""
    spans, translation, links = units(text), "", []
    for number in sorted(range(len(spans)), key=lambda number: (order[number % len(order)], number)):
        begin = len(translation)
        translation += text[spans[number].begin : spans[number].end]
        links.append((spans[number], Span(begin, len(translation))))
        translation += " "
    return AlignedText(translation, links)


def render(document: str, translate: object = same) -> str:
    marked = parse_html(document)
    return marked.render([translate(text) for text in marked.texts])


def tags(document: str) -> Counter[str]:
    return Counter(re.findall(r"<[^>]*>", document))


def is_well_formed(document: str) -> bool:
    waiting: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "br":
                waiting.append(tag)

        def handle_endtag(self, tag: str) -> None:
            waiting.append("wrong" if not waiting or waiting.pop() != tag else "")
            if not waiting[-1]:
                waiting.pop()

    Reader().feed(document)
    return not waiting


def reverse(text: str) -> AlignedText:
    return permuted(text, [-number for number in range(1000)])


@pytest.mark.parametrize(
    ("document", "translation"),
    [
        ("a <b>big</b> dog", "dog <b>big</b> a "),
        ("a <b>big <i>dog</i></b> runs", "runs <b><i>dog</i> big</b> a "),
        ("<a href='x'>see this</a> now", "now <a href='x'>this see</a> "),
        ("one<br>two", "two one<br>"),
        ("see <code>x = 1</code> here", "<code>x = 1</code> here see "),
        ("<b></b>one", "<b></b>one "),
        ("tell {name} it", "{name} it tell "),
    ],
)
def test_words_take_their_tags_along(document: str, translation: str) -> None:
    assert render(document, reverse) == translation


def test_an_element_takes_the_stretch_with_most_of_its_words() -> None:
    text = "a b c d"
    a, b, c, d = (Span(begin, begin + 1) for begin in (0, 2, 4, 6))
    links = [(source, Span(2 * rank, 2 * rank + 1)) for rank, source in enumerate((b, a, c, d, b))]
    translation = AlignedText("B A C D B", links)
    marked = parse_html("a <i>b c</i> d")
    assert marked.texts == [text]
    assert marked.render([translation]) in ("<i>B A C</i> D B", "B A <i>C</i> D B", "<i>B</i> A C D B")


def test_an_element_without_counterpart_stays_empty_where_its_words_were() -> None:
    translation = AlignedText("X Z", [(Span(0, 1), Span(0, 1)), (Span(4, 5), Span(2, 3))])
    assert parse_html("x <i>y</i> z").render([translation]) == "X <i></i>Z"


@pytest.mark.parametrize(
    "document", ["H<sub>2</sub>O and x<sup>2</sup>", "un<b>believ<i>abl</i></b>e", "<i>2000</i>year <b>a</b><i>b</i>"]
)
def test_tags_within_a_word_stay_in_it_where_it_comes_out_as_it_was(document: str) -> None:
    assert render(document) == document
    words = render(f"one {document} two", reverse).split()
    assert sorted(words) == sorted(f"one {document} two".split())


@pytest.mark.parametrize(
    "document",
    ["<code>x</code> is y", "one<code>!</code> two", "one <code>!</code>two", "{a} {b} two", "<b>stop</b><i>!</i> now"],
)
def test_white_space_around_what_is_not_translated_stays(document: str) -> None:
    assert render(document) == document


def test_of_two_copies_of_a_word_one_is_cut() -> None:
    source, copies = Span(0, 3), (Span(0, 3), Span(4, 7))
    translation = parse_html("H<sub>2</sub>O").render([AlignedText("H2O H2O", [(source, copy) for copy in copies])])
    assert translation == "H<sub>2</sub>O H2O"


def test_no_links_at_all() -> None:
    assert parse_html("<b>x</b> y<br>").render([AlignedText("some thing", [])]) == "<b></b><br>some thing"


@st.composite
def documents(draw: st.DrawFn) -> str:
    def content(depth: int) -> str:
        parts = []
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.integers(0, 5))
            if kind <= 2 or depth == 3:
                parts.append(draw(st.sampled_from(["one", "two words", "x, y", "&amp;", "3.5", "été"])))
            elif kind == 3:
                parts.append(draw(st.sampled_from(["<br>", "<code>a < b</code>", "{name}", "%s", "<!-- n -->"])))
            else:
                name = draw(st.sampled_from(NAMES))
                number = draw(st.integers(0, 999))
                parts.append(f'<{name} id="{number}">{content(depth + 1)}</{name}>')
        return draw(st.sampled_from([" ", ""])).join(parts)

    return content(0)


@given(documents(), st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_no_tag_is_lost_or_doubled_and_nesting_stays(document: str, order: list[int]) -> None:
    translation = render(document, lambda text: permuted(text, order))
    assert tags(translation) == tags(document)
    assert translation.count("{name}") == document.count("{name}")
    assert is_well_formed(translation)


@given(
    st.text(st.sampled_from("<>/abi &;!-\"'= \n{}%s"), max_size=40), st.lists(st.integers(0, 9), min_size=1, max_size=9)
)
def test_any_text_comes_back_with_all_its_tags(document: str, order: list[int]) -> None:
    marked = parse_html(document)
    translation = marked.render([permuted(text, order) for text in marked.texts])
    tag = re.compile(r"</?[ab](?=[\s/>])[^<>]*>")
    assert Counter(tag.findall(translation)) == Counter(tag.findall(document))


def test_an_outer_element_takes_a_foreign_word_in_rather_than_that_an_inner_one_loses_its_own() -> None:
    # the translation has the fourth word last
    result = render("the <span>very big <b>runs</b></span> now", lambda text: permuted(text, [0, 1, 2, 4, 3]))
    assert result.split() == ["the", "<span>very", "big", "now", "<b>runs</b></span>"]


def linked(text: str, translation: str, words: dict[str, str]) -> AlignedText:
    """Return a translation whose units are linked to a word of the text each, the first of its kind."""
    spans = {text[span.begin : span.end]: span for span in reversed(units(text))}
    return AlignedText(
        translation, [(spans[words[translation[span.begin : span.end]]], span) for span in units(translation)]
    )


def test_an_element_bridges_a_sign_that_attention_gives_to_another() -> None:
    words = {"1860": "1860", "-": "1860", "07": "Jul", "05": "5"}
    result = render("<span><em>Jul</em> <b>5</b></span>, <i>1860</i>", lambda text: linked(text, "1860-07-05", words))
    assert result == "<i>1860-</i><span><em>07</em>-<b>05</b></span>"


def test_half_a_word_has_the_word_s_translation() -> None:
    words = {"2026": "2026년", "05": "5월"}
    assert render("<i>2026</i>년 <b>5</b>월", lambda text: linked(text, "2026 05", words)) == "<i>2026</i> <b>05</b>"


def test_words_of_scripts_without_spaces() -> None:
    words = {"2000": "2000", "-": "年", "01": "1", "28": "28"}
    result = render("<i>2000</i>年<b>1</b>月<u>28</u>日", lambda text: linked(text, "2000-01-28", words))
    assert result == "<i>2000</i>-<b>01</b>-<u>28</u>"
