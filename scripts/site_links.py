"""A MkDocs hook that replaces links to files outside docs/ by the files' names.

Such links work in the repository, but the site does not contain the files.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with such links as text; raise an error if the repository does not contain the file either."""
    return without_links(markdown, PurePosixPath("docs") / page.file.src_uri)


def without_links(markdown: str, page: PurePosixPath) -> str:
    """Return the text of a page without such links; `page` is its path in the repository."""

    def named(link: re.Match[str]) -> str:
        text, address = link.groups()
        target = normpath(page.parent / address)
        if target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page} links to {target}, which does not exist")
        label = text.strip("`")
        return f"`{target}`" if label == address or f"/{target}".endswith(f"/{label}") else f"{text} (`{target}`)"

    return LINK.sub(named, markdown)
