"""A MkDocs hook that adds a notebook for each page of learn/ and for the exercises, with what they print as outputs.

A cell is a block of Python or one console command; blocks marked `not run` and all others remain text. A mark `page:
PATH` before a block names the recorded page, relative to the page itself, that the block's last line shows.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat
from mkdocs.structure.files import File
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from site_links import without_links

from attent.views.pages.page import Page

FOLDER, EXERCISES = "learn/", "exercises.md"
MARKS = r"(?:^<!-- [^\n]+ -->\n)*"
BLOCK = re.compile(
    rf"(?P<marks>{MARKS})^```(?P<language>python|console)\n(?P<code>.*?)^```\n"
    rf"(?:\n*{MARKS}^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
RECORDED = re.compile(r"<!-- page: (\S+) -->")
# Comments, and the elements around figures, which may hold several cells.
HIDDEN = re.compile(r"^(?:<!-- .+ -->|<div .+>|</div>)(?:\n|\Z)", re.MULTILINE)
# A console command, which a backslash continues on the next line, and its output below.
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PICTURE = re.compile(r"(!\[[^\]]*\])\(([^)]+\.(?:png|svg))\)")
# A link around a picture to the picture's own file, which a notebook does not have.
FULL_SIZE = re.compile(r"\[(!\[[^\]]*\]\(([^)]+\.svg)\))\]\(\2\)")
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
LINK = re.compile(r"(?<=\]\()([\w./-]+)\.md(#[\w-]+)?(?=\))")
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def on_files(files: Any, *, config: Any) -> Any:
    """Add a notebook for each taught page to the site's files."""
    for file in list(files.documentation_pages()):
        if is_taught(file):
            name = PurePosixPath(file.src_uri)
            content = nbformat.writes(notebook(Path(file.abs_src_path), name))
            files.append(File.generated(config, str(name.with_suffix(".ipynb")), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with a link to its notebook below its title."""
    if not is_taught(page.file):
        return markdown
    name = PurePosixPath(page.file.src_uri).with_suffix(".ipynb").name
    title, rest = markdown.split("\n", 1)
    return f'{title}\n\n[This page as a notebook]({name}){{ download="{name}" }}\n{rest}'


def is_taught(file: Any) -> bool:
    """Return whether a file of the site gets a notebook."""
    return file.src_uri == EXERCISES or (file.src_uri.startswith(FOLDER) and file.src_uri.endswith(".md"))


def notebook(path: Path, name: PurePosixPath) -> Any:
    """Return the notebook of the page at `path`; `name` is its path within the site."""
    cells = list(cells_of(path, name))
    for number, cell in enumerate(cells):
        # nbformat's own ids would change at every build
        cell["id"] = f"cell-{number}"
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}})


def cells_of(path: Path, name: PurePosixPath) -> Iterator[Any]:
    """Yield the cells of a page."""
    page = without_links(path.read_text(encoding="utf-8"), PurePosixPath("docs") / name)
    end = 0
    for block in BLOCK.finditer(page):
        if "<!-- not run:" in block["marks"]:
            continue
        yield from text_cell(page[end : block.start()], path.parent)
        end = block.end()
        if block["language"] == "console":
            yield from (code_cell(f"%%bash\n{command}", output) for command, output in COMMAND.findall(block["code"]))
        else:
            recorded = RECORDED.search(block["marks"])
            yield (
                page_cell(block["code"], path.parent / recorded[1])
                if recorded
                else code_cell(block["code"], block["output"])
            )
    yield from text_cell(page[end:], path.parent)


def text_cell(text: str, folder: Path) -> Iterator[Any]:
    """Yield a cell of text with its pictures embedded, unless the text is empty.

    Links lead to other notebooks or to pages of the site.
    """
    text = FULL_SIZE.sub(r"\1", LINK.sub(moved_link, HIDDEN.sub("", text).strip()))
    pictures = {Path(address).name: (folder / address).read_bytes() for _, address in PICTURE.findall(text)}
    text = PICTURE.sub(lambda picture: f"{picture[1]}(attachment:{Path(picture[2]).name})", text)
    attachments = {name: {TYPES[Path(name).suffix]: b64encode(content).decode()} for name, content in pictures.items()}
    if text:
        yield new_markdown_cell(text, **({"attachments": attachments} if attachments else {}))


def moved_link(link: re.Match[str]) -> str:
    """Return the address of a page's notebook if it is beside this one, otherwise that of the page on the site."""
    return f"{link[1]}.html{link[2] or ''}" if "/" in link[1] else f"{link[1]}.ipynb"


def code_cell(code: str, output: str | None) -> Any:
    """Return a cell of code with its output."""
    return new_code_cell(code.strip("\n"), outputs=[new_output("stream", name="stdout", text=output)] if output else [])


def page_cell(code: str, recorded: Path) -> Any:
    """Return a cell of code that shows a page, with the recorded page as its output."""
    page = Page(recorded.read_text(encoding="utf-8"))
    shown = new_output("execute_result", data={"text/html": page._repr_html_(), "text/plain": repr(page)})
    return new_code_cell(code.strip("\n"), outputs=[shown])
