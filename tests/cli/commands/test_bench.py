from __future__ import annotations

import json
from pathlib import Path

import pytest

from attent.benchmark.report import Report


def test_a_calibration_is_of_the_machine(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(
        "attent.benchmark.calibration.calibrate", lambda say: calls.append(say) or Report("Calibrated", {}, [])
    )
    monkeypatch.setattr("attent.benchmark.report.machine_sentence", lambda machine: "on a machine")
    assert attent("bench", "--calibrate").out[0] == "## Calibrated"
    assert len(calls) == 1


def test_translation(attent, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("en | 3/3/2026\n\nen | 4/4/2027\n", encoding="utf-8")
    done = attent("bench", run_folder, tmp_path / "lines.txt")
    assert (done.code, done.out[0]) == (0, "## 2 lines translated")
    rates = [line for line in done.out if line.endswith("per second:")]
    assert rates == ["greedy, lines per second:", "beam 5, lines per second:"]
    assert sum(line.startswith("| attent |") for line in done.out) == 3
    done = attent("bench", run_folder, tmp_path / "lines.txt", "--threads", 1, "--json")
    values = json.loads("\n".join(done.out))
    assert values["title"].endswith(" lines translated") and values["machine"]["threads"] == 1
    assert values["tables"][0]["rows"][0]["batch 32"] > 0


def test_generation(attent, generating_folder: Path) -> None:
    done = attent("bench", generating_folder)
    assert (done.code, done.out[0]) == (0, "## Text generation, 64 tokens per text")
    assert "greedy, new tokens per second:" in done.out
    assert "| engine | batch 1 | batch 8 | batch 32 |" in done.out
    assert done.err[0] == "greedy, new tokens per second, batches of 1, round 1 of 3: attent"
