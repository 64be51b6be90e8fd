"""The pages of the documentation, taken apart into their blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What stands before a block in a comment, which does not show on the page.
MARK = re.compile(r"<!-- (not run|slow|varies|tolerance): (.+?) -->")
FENCE = re.compile(r"(`{3,})(\S*)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        page: relative to the repository.
        line: of its first line of text, from 1.
        language: python, console, text, …
        text: what is within the fence.
        marks: by kind, each with its reason or its value: `not run` and `slow` for what is not run by every test, `varies` for an output
            that is no comparison's, `tolerance` for the share by which the numbers of an output may differ.
        output: whether only blank lines and marks part it from the block before.
    """

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]
    output: bool

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


class Page:
    """A page and its blocks."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).as_posix()
        self.blocks: list[Block] = []
        marks: dict[str, str] = {}
        fence, language, first, begun, adjoining = "", "", 0, list[str](), False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if fence and line.strip() != fence:
                begun.append(line)
            elif fence:
                self.blocks.append(Block(self.name, first, language, "\n".join(begun), marks, adjoining))
                fence, marks, adjoining = "", {}, True
            elif opened := FENCE.fullmatch(line):
                fence, language = opened.groups()
                first, begun = number + 1, []
            elif mark := MARK.fullmatch(line.strip()):
                marks[mark[1]] = mark[2]
            elif line.strip():
                marks, adjoining = {}, False

    def __repr__(self) -> str:
        return self.name


PAGES = [Page(ROOT / "README.md"), *(Page(path) for path in sorted((ROOT / "docs").rglob("*.md")))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`page` is every page; `slow_page` every page with blocks that are left out of the quick tests."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=repr)
    if "slow_page" in metafunc.fixturenames:
        slow = [page for page in PAGES if any("slow" in block.marks for block in page.blocks)]
        metafunc.parametrize("slow_page", slow, ids=repr)
