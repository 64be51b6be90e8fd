"""The course: the pages of docs/learn in the order of the site's navigation, read like a book."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
# Not parsed as YAML: the file names Python objects, which a safe loader refuses.
NAMES = re.findall(r"^  - (\d+) [^:\n]+: learn/(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
ORDER = [name for _, name in NAMES]
START = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
FIGURE = re.compile(r'^<div class="live-figure" id="figure-(\S+)" markdown>\n\n(.+?)\n\n</div>$', re.M | re.S)
SENTENCE = re.compile(r"black|dog|sings|noir|chien|chante")

each_page = pytest.mark.parametrize("name", ORDER)


def text_of(name: str) -> str:
    return (LEARN / f"{name}.md").read_text(encoding="utf-8")


def test_the_navigation_lists_all_pages_of_the_course_by_number() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in LEARN.glob("*.md"))
    assert [int(number) for number, _ in NAMES] == list(range(1, len(ORDER) + 1))


@each_page
def test_a_page_begins_with_the_page_before_and_ends_with_the_next(name: str) -> None:
    text, index = text_of(name), ORDER.index(name)
    # scripts/site_course.py writes it
    assert not re.search(r"\bpage \d+ of|\bminutes\b.*words\.md", text, re.I)
    sections = re.split(r"^## ", text, flags=re.M)
    if index:
        assert f"({ORDER[index - 1]}.md)" in sections[0], "the page before"
    if index + 1 < len(ORDER):
        assert sections[-1].startswith("What is still missing\n") and f"({ORDER[index + 1]}.md)" in sections[-1]


def test_the_head_of_a_page_has_its_number_and_the_minutes_of_the_start_page() -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "site_course.py"))
    order = [f"learn/{name}.md" for name in ORDER]
    course = hook["minutes"](START, order)
    assert [*course] == order and all(0 < minutes <= 12 for minutes in course.values())
    head = hook["head"]("learn/scores.md", course)
    assert head.startswith(f'<p class="place">page 3 of 11, {course["learn/scores.md"]} minutes<span ')
    assert (head.count("<i>"), head.count("<b>")) == (3, 8)
    with pytest.raises(ValueError, match=r"index\.md lists learn/recurrent\.md, .*, but mkdocs\.yml learn/masks\.md"):
        hook["minutes"](START, order[8:])


@each_page
def test_a_page_has_one_named_place_for_a_live_figure_which_is_not_empty(name: str) -> None:
    ((figure, content),) = FIGURE.findall(text_of(name))
    assert figure == {"queries-keys-values": "queries"}.get(name, name)
    assert any(mark in content for mark in ("```", "![", "|---|"))
    assert f"| `figure-{figure}` |" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


@each_page
def test_the_live_figure_follows_its_question(name: str) -> None:
    text = text_of(name)
    before = text[: text.index('<div class="live-figure"')]
    assert len(before.split()) <= (80 if name == ORDER[0] else 200)
    assert len(re.findall(r"^## ", before, re.M)) <= 1


def test_the_first_figure_shows_what_the_commands_of_its_page_print() -> None:
    text = text_of(ORDER[0])
    content, after = text.split("</div>", 1)
    source, fixed, attended = re.findall(r" \*(.+)\* \|$", content, re.M)
    assert f'attent translate runs/phrases-none "{source}"\n{fixed}\n' in after
    assert f'attent translate runs/phrases-rnn "{source}"\n{attended}\n' in after


@each_page
def test_the_sentence_is_on_every_page(name: str) -> None:
    assert len(set(SENTENCE.findall(text_of(name)))) >= 3


def test_the_list_on_the_start_page_is_that_of_the_pages() -> None:
    rows = re.findall(r"^(\d+)\. \[[^]]+\]\(learn/(\S+)\.md\), \d+ minutes: ", START, re.M)
    assert rows == NAMES


def test_softmax_is_written_down_before_it_is_used() -> None:
    """Its formula stands on the page of the course that names it first."""
    first = next(name for name in ORDER if "softmax" in text_of(name))
    text = text_of(first)
    assert r"\frac{\exp(s_i)}{\sum_j \exp(s_j)}" in text
    assert "softmax" not in text[: text.index("## The formula")]
