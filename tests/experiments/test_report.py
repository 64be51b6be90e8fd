from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from attent.errors import AttentError
from attent.experiments import figures as drawing
from attent.experiments.figures import Figure, Point, Series
from attent.experiments.report import Column, ModelComparison, Report, ResultTable, markdown, three_digits

MACHINE = {"processor": "Abacus", "cores": 2, "threads": 1, "python": "3.11", "torch": "2.13", "system": "Linux"}
TABLE = ResultTable(
    "beads",
    [Column("side", ""), Column("rate", "beads/s", ",.0f"), Column("times", "×", ".2f")],
    [{"side": "ours", "rate": 12345.6, "times": 1.0, "more": 7}, {"side": "theirs", "rate": 600, "times": None}],
)


def test_a_table_shows_its_columns_and_leaves_missing_values_empty() -> None:
    assert TABLE.lines() == [
        "|  | beads/s | × |",
        "| --- | --- | --- |",
        "| ours | 12,346 | 1.00 |",
        "| theirs | 600 |  |",
    ]


def test_a_report_in_markdown() -> None:
    lines = Report("Counting", MACHINE, [TABLE], ["Nothing was dropped."]).lines()
    assert lines[:6] == ["", "## Counting", "", "Abacus, 1 thread, Python 3.11, torch 2.13.", "", "beads:"]
    assert lines[-2:] == ["", "Nothing was dropped."]


@pytest.mark.parametrize(
    ("commit", "words"), [("abc", "commit abc (clean tree)"), ("abc*", "commit abc (files changed)")]
)
def test_the_head_of_a_report_names_commit_and_command(commit: str, words: str) -> None:
    report = Report("Counting", MACHINE | {"commit": commit}, [TABLE], command="attent count --to 'ten or so'")
    assert report.lines()[2:6] == [
        "",
        f"Abacus, 1 thread, Python 3.11, torch 2.13, {words}.",
        "",
        "`attent count --to 'ten or so'`",
    ]
    assert report.values()["machine"]["commit"] == commit
    assert report.values()["command"] == "attent count --to 'ten or so'"


def test_values_are_json_and_hold_what_no_column_shows() -> None:
    values = Report("Counting", MACHINE, [TABLE]).values()
    assert json.loads(json.dumps(values)) == values
    assert values["tables"][0]["rows"][0] == {"side": "ours", "rate": 12345.6, "times": 1.0, "more": 7}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05123, "0.0512"),
        (3.4, "3.40"),
        (41.82, "41.8"),
        (523.4, "523"),
        (1264.2, "1,264"),
        (0.0, "0.00"),
        (10, "10.0"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text
    assert Column("a", "", three_digits).cell({"a": value}) == text


def test_markdown() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


POINTS = [Point(1.0, 2.0, 1.5, 2.5, 7, (1.9, 2.1)), Point(3.0, math.nan)]


def result() -> ModelComparison:
    rows = [{"model": "one", "loss": math.nan, "values": {"low": 1.0}}]
    report = Report(
        "A comparison",
        MACHINE,
        [ResultTable("Losses", [Column("model", "model"), Column("loss", "loss", ".2f")], rows)],
        ["A note."],
    )
    return ModelComparison("found", report, [Figure("lines", "Lines", "x", "y", [Series("one", POINTS)])])


def test_tables_pictures_and_every_point_are_written(tmp_path: Path) -> None:
    written = result().write(tmp_path / "new")
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
    written = result().write(tmp_path)
    assert [path.name for path in written] == ["found.md", "found.json"]
    assert "png" not in written[0].read_text(encoding="utf-8")
