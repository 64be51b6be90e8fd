"""The course: the pages of docs/learn in the order of the site's navigation, read like a book."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
# Not parsed as YAML: the file names Python objects, which a safe loader refuses.
NAMES = re.findall(r"^      - (\d+) [^:\n]+: learn/(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
ORDER = [name for _, name in NAMES]
HEADER = re.compile(r"\*Page (\d+) of (\d+) · (\d+) minutes · \[Does your text use other words\?\]\(\.\./words\.md\)\*")
FIGURE = re.compile(r'^<div class="live-figure" id="figure-(\S+)" markdown>\n\n(.+?)\n\n</div>$', re.M | re.S)
SENTENCE = re.compile(r"black|dog|sings|noir|chien|chante")

each_page = pytest.mark.parametrize("name", ORDER)


def text_of(name: str) -> str:
    return (LEARN / f"{name}.md").read_text(encoding="utf-8")


def test_the_navigation_lists_all_pages_of_the_course_by_number() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in LEARN.glob("*.md"))
    assert [int(number) for number, _ in NAMES] == list(range(1, len(ORDER) + 1))


@each_page
def test_a_page_says_where_it_stands_and_where_the_reader_goes_next(name: str) -> None:
    text, index = text_of(name), ORDER.index(name)
    header = HEADER.search(text.split("\n\n")[1])
    assert header, name
    number, pages, minutes = map(int, header.groups())
    assert (number, pages) == (index + 1, len(ORDER)) and minutes <= 12
    sections = re.split(r"^## ", text, flags=re.M)
    if index:
        assert f"({ORDER[index - 1]}.md)" in sections[0], "the page before"
    if number < pages:
        assert sections[-1].startswith("What the next page mends\n") and f"({ORDER[index + 1]}.md)" in sections[-1]


@each_page
def test_a_page_has_one_named_place_for_a_live_figure_which_is_not_empty(name: str) -> None:
    ((place, content),) = FIGURE.findall(text_of(name))
    places = {"queries-keys-values": "queries"}
    assert place == places.get(name, name)
    assert "```" in content or "![" in content
    assert f"| `figure-{place}` |" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


@each_page
def test_the_sentence_is_on_every_page(name: str) -> None:
    assert len(set(SENTENCE.findall(text_of(name)))) >= 3


def test_the_list_on_the_start_page_is_that_of_the_pages() -> None:
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(\d+)\. \[[^]]+\]\(learn/(\S+)\.md\), (\d+) minutes: ", start, re.M)
    expected = [(number, name, header[3]) for number, name in NAMES if (header := HEADER.search(text_of(name)))]
    assert rows == expected


def test_softmax_is_written_down_before_it_is_used() -> None:
    """Its formula stands on the page of the course that names it first."""
    first = next(name for name in ORDER if "softmax" in text_of(name))
    text = text_of(first)
    assert r"\frac{\exp(s_i)}{\sum_j \exp(s_j)}" in text
    assert "softmax" not in text[: text.index("## The formula")]
