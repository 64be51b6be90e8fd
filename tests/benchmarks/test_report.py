import json
import subprocess
from pathlib import Path

import _report as report
import pytest
import torch
from _report import Column, Report, ResultTable, three_digits

from attent import devices

MACHINE = {"processor": "Abacus", "cores": 2, "threads": 1, "python": "3.11", "torch": "2.13", "system": "Linux"}
TABLE = ResultTable(
    "beads",
    [Column("side", ""), Column("rate", "beads/s", ",.0f"), Column("times", "×", ".2f")],
    [{"side": "ours", "rate": 12345.6, "times": 1.0, "more": 7}, {"side": "theirs", "rate": 600, "times": None}],
)


def test_a_report_in_markdown() -> None:
    table = ["|  | beads/s | × |", "| --- | --- | --- |", "| ours | 12,346 | 1.00 |", "| theirs | 600 |  |"]
    assert TABLE.lines() == table
    lines = Report("Counting", MACHINE, [TABLE], ["Nothing was dropped."]).lines()
    assert lines[:6] == ["", "## Counting", "", "Abacus, 1 thread, Python 3.11, torch 2.13.", "", "beads:"]
    assert lines[-2:] == ["", "Nothing was dropped."]


@pytest.mark.parametrize(
    ("commit", "words"), [("abc", "commit abc (clean tree)"), ("abc*", "commit abc (files changed)")]
)
def test_the_head_of_a_report_names_commit_and_command(commit: str, words: str) -> None:
    counting = Report("Counting", MACHINE | {"commit": commit}, [TABLE], command="attent count --to 'ten or so'")
    assert counting.lines()[3] == f"Abacus, 1 thread, Python 3.11, torch 2.13, {words}."
    assert counting.lines()[5] == "`attent count --to 'ten or so'`"
    assert counting.values()["machine"]["commit"] == commit
    assert counting.values()["command"] == "attent count --to 'ten or so'"


def test_values_are_json_and_hold_what_no_column_shows() -> None:
    values = Report("Counting", MACHINE, [TABLE]).values()
    assert json.loads(json.dumps(values)) == values
    assert values["tables"][0]["rows"][0] == {"side": "ours", "rate": 12345.6, "times": 1.0, "more": 7}


def test_three_digits() -> None:
    values = (0.05123, 3.4, 41.82, 523.4, 1264.2, 0.0, 10)
    assert [*map(three_digits, values)] == ["0.0512", "3.40", "41.8", "523", "1,264", "0.00", "10.0"]
    assert Column("a", "", three_digits).cell({"a": 3.4}) == "3.40"


def test_what_measured_is_named() -> None:
    info = report.machine_info()
    assert info["processor"] == devices.processor() != ""
    assert info["threads"] == torch.get_num_threads()
    assert info["torch"] == torch.__version__
    assert int(info["cores"]) >= 1


def test_the_commit_is_that_of_a_checkout_which_has_the_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=one", "-c", "user.email=one@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    file, installed = tmp_path / "module.py", tmp_path / "site-packages" / "module.py"
    file.write_text("1")
    assert report.revision(file) is None
    git("init", "--quiet")
    git("add", "module.py")
    git("commit", "--quiet", "--message", "One")
    commit = git("rev-parse", "--short", "HEAD")
    assert report.revision(file) == commit
    file.write_text("2")
    assert report.revision(file) == f"{commit}*"
    installed.parent.mkdir()
    installed.write_text("1")
    assert report.revision(installed) is None
