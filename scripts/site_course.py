"""A MkDocs hook that says at the head of each page of the course where the reader is, and how long the page takes.

The order is that of the navigation; the minutes are those of the list on docs/index.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROW = re.compile(r"^\d+\. \[[^]]+\]\((learn/\S+\.md)\), (\d+) minutes: ", re.MULTILINE)
COURSE: dict[str, int] = {}


def on_nav(nav: Any, *, config: Any, **_: Any) -> Any:
    """Read the minutes of the pages; raise an error if the list and the navigation differ."""
    order = [page.file.src_uri for page in nav.pages if page.file.src_uri.startswith("learn/")]
    COURSE.clear()
    COURSE.update(minutes((Path(config.docs_dir) / "index.md").read_text(encoding="utf-8"), order))
    return nav


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page of the course with its head below the title, before the link that site_notebooks.py has added."""
    if page.file.src_uri not in COURSE:
        return markdown
    title, rest = markdown.split("\n", 1)
    words = "[Other names for these terms](../words.md)"
    return f"{title}\n\n{head(page.file.src_uri, COURSE)}\n\n{words} · {rest.lstrip()}"


def minutes(start: str, order: list[str]) -> dict[str, int]:
    """Return the minutes of each page by its path in docs/.

    Args:
        start: the Markdown of the start page.
        order: the paths of the course's pages in the order of the navigation.

    Raises:
        ValueError: the list on the start page has other pages, or another order.
    """
    found = {path: int(number) for path, number in ROW.findall(start)}
    if [*found] != order:
        raise ValueError(f"docs/index.md lists {', '.join(found)}, but mkdocs.yml {', '.join(order)}")
    return found


def head(path: str, course: dict[str, int]) -> str:
    """Return the head of a page as HTML: its number and minutes, and a bar with a part for each page."""
    number = [*course].index(path) + 1
    parts = "".join("<i></i>" if part <= number else "<b></b>" for part in range(1, len(course) + 1))
    return (
        f'<p class="place">page {number} of {len(course)}, {course[path]} minutes'
        f'<span class="progress" aria-hidden="true">{parts}</span></p>'
    )
