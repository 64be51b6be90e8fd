from __future__ import annotations

import json

import pytest

from attent.experiments.benchmarking.report import Column, Report, Table, markdown, three_digits

MACHINE = {"processor": "Abacus", "cores": 2, "threads": 1, "python": "3.11", "torch": "2.13", "system": "Linux"}
TABLE = Table(
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
    lines = Report("Counting", MACHINE, [TABLE], ["Nothing was dropped."]).lines("abc*")
    assert lines[:6] == ["", "## Counting", "", "Abacus, 1 thread, Python 3.11, torch 2.13, commit abc*.", "", "beads:"]
    assert lines[-2:] == ["", "Nothing was dropped."]


def test_values_are_json_and_hold_what_no_column_shows() -> None:
    values = Report("Counting", MACHINE, [TABLE]).values()
    assert json.loads(json.dumps(values)) == values
    assert values["tables"][0]["rows"][0] == {"side": "ours", "rate": 12345.6, "times": 1.0, "more": 7}


@pytest.mark.parametrize(
    ("value", "text"), [(0.05123, "0.0512"), (3.4, "3.40"), (41.82, "41.8"), (523.4, "523"), (1264.2, "1,264"), (0.0, "0.00"), (10, "10.0")]
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text
    assert Column("a", "", three_digits).cell({"a": value}) == text


def test_markdown() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
