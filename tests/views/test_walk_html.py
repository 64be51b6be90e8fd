from __future__ import annotations

import re
from html.parser import HTMLParser

from attent.views.walk import walk


class Checked(HTMLParser):
    """Notes every tag and attribute, and that what is opened is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_can_hold_any_number_of_walks() -> None:
    page = Checked(walk(heads=2)._repr_html_() + walk()._repr_html_())
    assert page.open == []
    assert not page.attributes & {"id", "name", "src", "href", "class"}
    assert not {"script", "style", "link", "img"} & set(page.tags)


def test_every_step_has_its_equation_and_table() -> None:
    found = walk()
    html = found._repr_html_()
    assert html.count("<details") == len(found.steps)
    assert html.count("<table") == len(found.steps) + len(found.parameters)
    assert "scores = Q·Kᵀ" in html
    assert "(1, 1, 6, 6)" in html
    assert html.count(">1.000<") == 6


def test_words_cannot_break_out() -> None:
    html = walk("<script>alert(1)</script> & b")._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_weights_are_shaded_by_size() -> None:
    found = walk("a")
    assert re.search(r"background:rgba\(31,119,180,0\.70\)", found._repr_html_())
