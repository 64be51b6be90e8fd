"""Called by MkDocs for every page: a link to a file outside docs/, which the site does not hold, becomes the file's name.

In the repository such links are to be followed; on the site, which is nowhere near it, they would lead nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with such links as text; raises where one leads nowhere in the repository either."""
    return without_links(markdown, PurePosixPath("docs") / page.file.src_uri)


def without_links(markdown: str, page: PurePosixPath) -> str:
    """The text of a page that lies at `page` within the repository."""

    def named(link: re.Match[str]) -> str:
        text, address = link.groups()
        target = normpath(page.parent / address)
        if target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page} links to {target}, which is not there")
        shown = text.strip("`")
        return f"`{target}`" if shown == address or f"/{target}".endswith(f"/{shown}") else f"{text} (`{target}`)"

    return LINK.sub(named, markdown)
