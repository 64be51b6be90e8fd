"""A MkDocs hook that adds a page for each source file that a page names, and links the file's path to it.

In tables with a column "file", the first cell of a row gets the same link under the word "file", and other cells get
the heads of their columns: telephones show these in place of the column and of the table's head.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PACKAGE = "src/attent"
# Pages abbreviate paths: design.md and the tables of tasks begin in the package, names.md in its folder of parts.
STARTS = ("", f"{PACKAGE}/", f"{PACKAGE}/attention/")
NAMED = re.compile(r"`([\w/]+/\w+\.py)`")
SHOWN = re.compile(r"<code>([\w/]+/\w+\.py)</code>(?!</a>)")
TABLE = re.compile(r"<table>.+?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.+?</tr>", re.DOTALL)
CELL = re.compile(r"(<t[hd])([^>]*>)(.*?)(</t[hd]>)", re.DOTALL)
ADDRESS = re.compile(r'<a class="source" href="([^"]+)">')
# The search leaves these pages out; four backticks, because docstrings may hold three.
PAGE = "---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n````python\n{code}````\n"


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of source files."""
    texts = [file.content_string for file in files.documentation_pages()]
    for path in sorted({path for text in texts for name in NAMED.findall(text) if (path := source(name))}):
        content = PAGE.format(path=path, code=(ROOT / path).read_text(encoding="utf-8"))
        files.append(File.generated(config, page_of(path), content=content))
    return files


def on_page_content(html: str, *, page: Any, files: Any, **_: Any) -> str:
    """Return the page with links to the pages of source files."""

    def linked(found: re.Match[str]) -> str:
        path = source(found[1])
        if path is None or page_of(path) == page.file.src_uri or not files.get_file_from_path(page_of(path)):
            return found[0]
        address = relpath(page_of(path).removesuffix(".md") + ".html", Path(page.file.src_uri).parent.as_posix())
        return f'<a class="source" href="{address}">{found[0]}</a>'

    return TABLE.sub(lambda table: with_links(table[0]), SHOWN.sub(linked, html))


def source(name: str) -> str | None:
    """Return the path in the repository of a file of the package, or None if there is none of this name."""
    paths = (start + name for start in STARTS)
    return next((path for path in paths if path.startswith(PACKAGE) and (ROOT / path).is_file()), None)


def page_of(path: str) -> str:
    """Return the path in docs/ of a source file's page."""
    return f"source/{path.removeprefix(f'{PACKAGE}/').removesuffix('.py')}.md"


def with_links(table: str) -> str:
    """Return a table whose column "file" has that class, with its links in the first column too."""
    heads = [cell[3] for cell in CELL.finditer(table.split("</tr>")[0])]
    if "file" not in heads[1:]:
        return table
    heads = ["" if head == "equation" else head for head in heads]
    place, address = heads.index("file"), ""

    def row(found: re.Match[str]) -> str:
        nonlocal address
        cells = [list(cell.groups()) for cell in CELL.finditer(found[0])]
        for cell, head in zip(cells[1:], heads[1:], strict=True):
            cell[1] = (
                f' class="file"{cell[1]}' if head == "file" else f' data-head="{head}"{cell[1]}' if head else cell[1]
            )
        # "same file" has the address of the row before
        address = next(iter(ADDRESS.findall(cells[place][2])), address)
        if cells[0][0] == "<td" and address:
            cells[0][2] += f' <a class="file" href="{address}">file</a>'
        return f"<tr>{''.join(''.join(cell) for cell in cells)}</tr>"

    return ROW.sub(row, table)
