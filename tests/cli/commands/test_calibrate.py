from __future__ import annotations

import pytest

from attent.benchmark.report import Report


def test_a_calibration_is_of_the_machine(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(
        "attent.benchmark.calibration.calibrate", lambda say: calls.append(say) or Report("Calibrated", {}, [])
    )
    monkeypatch.setattr("attent.benchmark.report.machine_sentence", lambda machine: "on a machine")
    assert attent("calibrate").out[0] == "## Calibrated"
    assert len(calls) == 1
