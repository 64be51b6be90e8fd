from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from attent.errors import AttentError
from attent.experiments.benchmarking.report import Column, Report
from attent.experiments.comparing import figure as drawing
from attent.experiments.comparing.results import Figure, Point, Result, Series, table, write

MACHINE = {"processor": "one", "threads": 1, "python": "3", "torch": "2"}
POINTS = [Point(1.0, 2.0, 1.5, 2.5, 7, (1.9, 2.1)), Point(3.0, math.nan)]


def result() -> Result:
    rows = [{"model": "one", "loss": math.nan, "values": {"low": 1.0}}]
    report = Report(
        "A comparison", MACHINE, [table("Losses", [Column("model", "model"), Column("loss", "loss", ".2f")], rows)], ["A note."]
    )
    return Result("found", report, [Figure("lines", "Lines", "x", "y", [Series("one", POINTS)])])


def test_tables_pictures_and_every_point_are_written(tmp_path: Path) -> None:
    written = write(result(), tmp_path / "new")
    assert [path.name for path in written] == ["found.md", "found.json", "lines.png"]
    page = written[0].read_text(encoding="utf-8").splitlines()
    assert page[0] == "# A comparison"
    assert "| one |  |" in page
    assert page[-1] == "![Lines](lines.png)"
    values = json.loads(written[1].read_text(encoding="utf-8"))
    assert values["figures"][0]["series"][0]["points"][0] == {
        "x": 1.0, "y": 2.0, "low": 1.5, "high": 2.5, "sentences": 7, "by_seed": [1.9, 2.1],
    }  # fmt: skip
    assert values["figures"][0]["series"][0]["points"][1]["y"] is None
    assert values["tables"][0]["rows"][0] == {"model": "one", "loss": None, "values": {"low": 1.0}}
    assert written[2].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_are_no_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Path:
        raise AttentError("pictures need matplotlib")

    monkeypatch.setattr(drawing, "draw", missing)
    written = write(result(), tmp_path)
    assert [path.name for path in written] == ["found.md", "found.json"]
    assert "png" not in written[0].read_text(encoding="utf-8")
