"""walk_page(): a walk as one HTML file, with every number and what it is made of."""

from __future__ import annotations

import re
from html import escape

from attent.views.pages.page import Page, web_file
from attent.views.render_walk import CELL_STYLE, Walk

DIGITS = 4


def walk_page(walk: Walk) -> Page:
    """Build a page of a walk: every row and column, to four digits.

    Where one points, or clicks to keep it, the page marks the query's and the key's rows in every table, and writes out
    the sum that a score Q·Kᵀ or an output is.

    Args:
        walk: of a text or of a run, as `attent.walk` returns it.
    """
    style, script = (web_file(f"walk.{ending}") for ending in ("css", "js"))
    cells = walk.html(limit=None, digits=DIGITS).replace(f' style="{CELL_STYLE}"', "").replace(f"{CELL_STYLE};", "")
    parts = {"title": escape(walk.title), "style": style, "walk": cells, "script": script}
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], web_file("walk.html"))
    # a lone surrogate, which a token may be cut to, cannot be encoded
    return Page(html.encode("utf-8", "replace").decode("utf-8"))
