"""The course and the exercises are notebooks of the site: no block is missing, and cells print what the page shows."""

from __future__ import annotations

import html
import re
import runpy
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("material", reason="mkdocs-material is not installed")

import site_notebooks  # noqa: E402 - it needs both

ROOT = Path(__file__).parents[2]
LEARN = [*sorted((ROOT / "docs" / "learn").glob("*.md")), ROOT / "docs" / "exercises.md"]
PAGE_TESTS = runpy.run_path(str(Path(__file__).with_name("test_pages.py")))
# Of a recorded page, its words and figures; its program changes.
DESCRIPTION = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)

learnt = pytest.mark.parametrize("path", LEARN, ids=lambda path: path.stem)


def notebook_of(path: Path) -> Any:
    return site_notebooks.notebook(path, PurePosixPath(path.relative_to(ROOT / "docs").as_posix()))


def expected_cells(pages: list[Any], path: Path) -> list[tuple[str, str, Any]]:
    """Of each cell that a page asks for.

    Its text, what it prints, and the block whose marks say how close that must be.
    """
    (page,) = [page for page in pages if page.name == path.relative_to(ROOT).as_posix()]
    cells: list[tuple[str, str, Any]] = []
    can_print = False
    for block in page.blocks:
        if block.language == "text" and block.output and can_print:
            cells[-1] = (cells[-1][0], block.text, block)
        can_print = False
        if "not run" in block.marks:
            continue
        if block.language == "python":
            cells.append((block.text, "", block))
            can_print = True
        elif block.language == "console":
            cells += [(f"%%bash\n{command}", output, block) for _, command, output in PAGE_TESTS["commands"](block)]
    return cells


def printed(cell: Any) -> str:
    return "".join(
        output.text for output in cell.get("outputs", ()) if output.output_type == "stream" and output.name == "stdout"
    )


def displayed_pages(cell: Any) -> list[str]:
    """The pages that a cell shows in frames."""
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


@learnt
def test_no_block_is_missing(pages: list[Any], path: Path) -> None:
    notebook = notebook_of(path)
    nbformat.validate(notebook)
    code = [(cell.source, printed(cell).strip("\n")) for cell in notebook.cells if cell.cell_type == "code"]
    assert code == [(source, output.strip("\n")) for source, output, _ in expected_cells(pages, path)]
    (page,) = [page for page in pages if page.name == path.relative_to(ROOT).as_posix()]
    saved = "\n".join(cell.source + "\n" + printed(cell) for cell in notebook.cells)
    assert not [block.location for block in page.blocks if block.language != "console" and block.text not in saved]
    # nor does it need another file
    for cell in notebook.cells:
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", cell.source) if cell.cell_type == "markdown" else []
        assert all(picture.removeprefix("attachment:") in cell.attachments for picture in pictures)
        assert "<!-- " not in cell.source
        if cell.cell_type == "markdown":
            assert not re.findall(r"\]\([^)]*\.md[)#]", cell.source)


@pytest.mark.slow
def test_the_page_of_maps_holds_one_to_point_at(window: Any, tmp_path: Path) -> None:
    cells = notebook_of(ROOT / "docs" / "learn" / "seeing.md").cells
    frames = [frame for cell in cells if cell.cell_type == "code" for frame in displayed_pages(cell)]
    (tmp_path / "frame.html").write_text("<!DOCTYPE html><meta charset=utf-8>" + "".join(frames), encoding="utf-8")
    opened = window.open(tmp_path / "frame.html")
    (inside,) = opened.frames[1:]
    inside.wait_for_selector("canvas, svg")
    assert "wagged" in inside.inner_text("body")
    window.picture(opened, "notebook-frame")


@pytest.mark.slow
@learnt
def test_a_notebook_shows_what_happens(
    pages: list[Any], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    for name in PAGE_TESTS["FOLDERS"]:
        (tmp_path / name).symlink_to(ROOT / name)
    (page,) = [page for page in pages if page.name == path.relative_to(ROOT).as_posix()]
    if PAGE_TESTS["reads_course"](page):
        request.getfixturevalue("course")(tmp_path, [block for block in page.blocks if "shared" in block.marks])
    # commands are found where this Python is, print no colours, and leave nothing in the home folder; one thread, as in
    # other tests
    values = {"COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    values |= {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    recorded, run = notebook_of(path), notebook_of(path)
    nbclient.NotebookClient(
        run, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    expected = iter(expected_cells(pages, path))
    for before, after in zip(recorded.cells, run.cells, strict=True):
        if before.cell_type == "code":
            _, output, block = next(expected)
            PAGE_TESTS["check"](block, output, printed(after), block.line)
            assert len(displayed_pages(before)) == len(displayed_pages(after))
            assert all(map(same_page, displayed_pages(before), displayed_pages(after)))


def same_page(recorded: str, actual: str) -> bool:
    """Whether two frames have the same words, and figures as near as processors make them."""
    (matches,), (reference,) = (DESCRIPTION.findall(html.unescape(frame)) for frame in (recorded, actual))
    return PAGE_TESTS["same"](matches, reference, 0.02)
