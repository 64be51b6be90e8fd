"""The pages of the documentation, parsed into fenced blocks."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A mark before a block, in a comment that the page does not show.
MARK = re.compile(r"<!-- (not run|slow|varies|tolerance|within|shared|page): (.+?) -->")
FENCE = re.compile(r"(`{3,})(\S*)")
# The name of what a command writes.
OUT = re.compile(r"--out (\S+)")
# A cell of a table, in which a bar is written \|.
CELL = re.compile(r"\|((?:[^|\\]|\\.)*)(?=\|)")
# The last headings of a table whose rows are tried.
TRIED = ["type", "result"]


@dataclass(frozen=True)
class Block:
    """A fenced block, or a row of a table that is tried.

    Args:
        page: relative to the repository.
        line: number of its first line of text, from 1.
        language: python, console, text, …; row of a row.
        text: of the block, without the fence; of a row what to type.
        marks: reasons or values by kind: `not run` and `slow` for code that quick tests skip, `varies` for output that
            is not compared, `tolerance` for the share by which numbers of the output may differ, `within` for the
            amount by which they may (shades and widths of columns are not compared then), `shared` for commands whose
            results other pages read, and which the fixture `course` runs once, `page` for the recorded page that a
            notebook shows.
        output: whether only blank lines and marks separate it from the block before.
        result: of a row, what comes of it.
    """

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]
    output: bool
    result: str = ""

    @property
    def location(self) -> str:
        return f"{self.page}:{self.line}"


class Page:
    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).as_posix()
        self.blocks: list[Block] = []
        marks: dict[str, str] = {}
        fence, language, first, text_lines, adjoining = "", "", 0, list[str](), False
        is_tried = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if fence and line.strip() != fence:
                text_lines.append(line)
            elif fence:
                self.blocks.append(Block(self.name, first, language, "\n".join(text_lines), marks, adjoining))
                fence, marks, adjoining = "", {}, True
            elif opened := FENCE.fullmatch(line):
                fence, language = opened.groups()
                first, text_lines = number + 1, []
            elif mark := MARK.fullmatch(line.strip()):
                marks[mark[1]] = mark[2]
            elif line.startswith("|"):
                cells = [cell.strip() for cell in CELL.findall(line)]
                if is_tried and set(line) - set("|- "):
                    self.blocks.append(Block(self.name, number, "row", cells[-2], marks, False, cells[-1]))
                is_tried, adjoining = is_tried or cells[-2:] == TRIED, False
                marks = marks if is_tried else {}
            elif line.strip():
                marks, adjoining, is_tried = {}, False, False

    def __repr__(self) -> str:
        return self.name


PAGES = [Page(path) for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `page` by pages with blocks to try, and `slow_page` by those with blocks that quick tests skip.

    All blocks of the course are tried as notebooks.
    """
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", [page for page in PAGES if page.blocks], ids=repr)
    if "slow_page" in metafunc.fixturenames:
        others = [page for page in PAGES if not page.name.startswith("docs/learn/")]
        slow = [page for page in others if any("slow" in block.marks for block in page.blocks)]
        metafunc.parametrize("slow_page", slow, ids=repr)


@pytest.fixture
def pages() -> list[Page]:
    return PAGES


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, Iterable[Block]], None]:
    """Run what the pages of the course share, once for all processes, and check what it prints.

    Returns a function that links the results into a folder, except for those that certain blocks make themselves.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "course"
    done = folder / "done"
    shared = [block for page in PAGES for block in page.blocks if "shared" in block.marks]
    # what generates data comes before what trains on them
    shared.sort(key=lambda block: "attent data " not in block.text)
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(1)
    else:
        try:
            run_shared(folder, shared)
        finally:
            done.touch()
    results = [name for block in shared for name in OUT.findall(block.text)]

    def link(into: Path, generated: Iterable[Block] = ()) -> None:
        own = {name for block in generated for name in OUT.findall(block.text)}
        for name in results:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            if name not in own:
                (into / name).symlink_to(folder / name)

    return link


def run_shared(folder: Path, blocks: Iterable[Block]) -> None:
    """Run the commands of these blocks in the folder."""
    tests = runpy.run_path(str(Path(__file__).with_name("test_pages.py")))
    (folder / "configs").symlink_to(ROOT / "configs")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("NO_COLOR", "1")
        for block in blocks:
            for line, command, output in tests["commands"](block):
                printed = tests["execute"](command)
                tests["check"](block, output, printed, line)
                assert all((folder / name).exists() for name in OUT.findall(command)), f"{command}: {printed}"
