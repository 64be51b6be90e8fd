from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attent.errors import RunError
from attent.experiments import bench_translation
from attent.experiments.bench_translation import batch_rates, compare, line_latencies, load_engines


class Recorder:
    """An engine that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def search(self, texts: Sequence[str], settings: Any = None, *, batch: int = 0) -> list[Any]:
        self.asked.append((len(texts), 1 if settings is None else settings.beam, batch))
        return []


def test_engines_take_turns_size_by_size() -> None:
    sides = {"a": Recorder(), "b": Recorder()}
    rows = batch_rates(sides, ["x"] * 9, "beam 5", (2, 4), 3)
    assert sides["a"].asked == sides["b"].asked == [(9, 5, 2), (9, 5, 4)] * 3
    assert [row["engine"] for row in rows] == ["a", "b"]
    assert rows[0]["batch 4"] >= rows[0]["batch 4, median"] > 0


def test_lines_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1, 22))
    monkeypatch.setattr(bench_translation, "search_seconds", lambda *arguments: next(times) / 1000)
    (row,) = line_latencies({"only": Recorder()}, ["x"] * 21, ["greedy"])
    assert row == {"engine": "only", "greedy, p50": pytest.approx(11), "greedy, p95": pytest.approx(20)}


def test_a_run_without_exports_is_measured_alone(run_folder: Path) -> None:
    found, left_out = load_engines(run_folder)
    assert list(found) == ["attent"]
    assert [line.split()[0] for line in left_out] == list(bench_translation.ENGINES)
    report = compare(
        run_folder, ["abc", "fade", "bee"], rounds=1, sizes={"greedy": (2, 3, 4), "beam 5": (8, 16)}, single_lines=2
    )
    assert [[column.title for column in table.columns] for table in report.tables] == [
        ["engine", "batch 2", "batch 3"],
        ["engine", "batch 8"],
        ["engine", "greedy, p50", "greedy, p95", "beam 5, p50", "beam 5, p95"],
    ]
    assert report.notes == left_out


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run folder"):
        load_engines(tmp_path)
