import json
from pathlib import Path

import calibrate as calibration
import pytest
from calibrate import calibrate, cheapest, cost, time_in_turn

from attent.attention.backends import heuristics
from attent.attention.backends.heuristics import ROWS, MachineRow
from attent.errors import ImplementationError


def timing(
    keys: int, dense: float, pytorch: float, measured: str = "forward", dtype: str = "float32"
) -> dict[str, object]:
    return {"keys": keys, "dtype": dtype, "measured": measured, "dense": dense, "pytorch": pytorch}


def test_the_cost_of_a_row_by_hand() -> None:
    timings = [timing(10, 1.0, 2.0), timing(20, 3.0, 1.0), timing(20, 1.0, 4.0, "gradients")]
    # dense for all: 1, 3 and 1 times the faster side
    assert cost(MachineRow("all", ""), timings) == pytest.approx(5 / 3)
    assert cost(MachineRow("split", "", float32=10), timings) == pytest.approx(1.0)
    # PyTorch for all: 2, 1 and 4 times
    assert cost(MachineRow("none", "", 0, 0, 0, 0), timings) == pytest.approx(7 / 3)


def test_the_processors_own_row_wins_within_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "processor_class", lambda: "avx2")
    assert cheapest({"avx512": 1.0, "avx2": 1.0, "amx": 1.3}) == "avx2"
    assert cheapest({"avx512": 1.0, "avx2": 1.019}) == "avx2"
    assert cheapest({"avx512": 1.0, "avx2": 1.021}) == "avx512"


@pytest.mark.needs_native
def test_the_row_that_costs_least_is_chosen_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "cost", lambda row, timings: {"avx2": 1.0}.get(row.name, 2.0))
    try:
        report = calibrate(keys=(5, 9), seconds=0.0)
        rows = [(row["keys"], row["dtype"], row["measured"]) for row in report.tables[0].rows]
        assert rows[1:3] == [(5, "float32", "gradients"), (9, "float32", "forward")] and len(rows) == 8
        file = tmp_path / "attent" / "machine.json"
        assert str(file) in report.notes[0]
        assert json.loads(file.read_text())["row"] == "avx2"
        assert heuristics.current_row() is ROWS["avx2"]
    finally:
        heuristics._calibrated_row.cache_clear()
    # without the library there is nothing to choose
    monkeypatch.setattr(calibration, "is_compiled", lambda: False)
    with pytest.raises(ImplementationError, match="nothing to choose"):
        calibrate(keys=(5,))


def test_sides_take_turns_and_the_first_call_of_each_turn_does_not_count() -> None:
    calls: list[str] = []
    timings = time_in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b", *("aaaabbbb") * 2]
    assert set(timings) == {"a", "b"}
    calls.clear()
    # no round begins after the time, but three always do
    time_in_turn({"only": lambda: calls.append("a")}, rounds=50, seconds=0.0)
    assert len(calls) == 1 + 3 * 4


def test_the_least_and_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    takes = iter([0.5, 0.5, 0.03, 0.01, 0.02])

    def work() -> None:
        clock[0] += next(takes)

    monkeypatch.setattr("calibrate.time.perf_counter", lambda: clock[0])
    actual = time_in_turn({"only": work}, rounds=1)["only"]
    assert actual == pytest.approx((10, 20))
