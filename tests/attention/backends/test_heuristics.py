from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from attent.attention import attend, explain
from attent.attention.backends import heuristics
from attent.attention.backends.heuristics import ROWS, MachineRow, current_row, save_calibration, using_row
from attent.ops import eligibility, native

TENSORS = [torch.zeros(1, 1, 600, 2)] * 3


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    heuristics._calibrated_row.cache_clear()
    yield tmp_path / "attent" / "machine.json"
    heuristics._calibrated_row.cache_clear()


@pytest.mark.parametrize(
    ("level", "amx", "name"), [(0, False, "baseline"), (1, False, "avx2"), (2, False, "avx512"), (2, True, "amx")]
)
def test_a_processor_has_the_row_of_its_class(
    cache: Path, level: int, amx: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "simd_level", lambda: level)
    monkeypatch.setattr(native, "has_amx", lambda: amx)
    assert current_row() is ROWS[name]


def test_a_calibration_decides_on_its_processor_until_its_file_is_removed(cache: Path) -> None:
    default = current_row()
    second = next(row for row in ROWS.values() if row is not default)
    assert save_calibration(second, {second.name: 1.0}) == cache
    choice = json.loads(cache.read_text())
    assert choice["row"] == second.name
    assert current_row() is second
    cache.write_text(json.dumps(choice | {"processor": "another"}))
    heuristics._calibrated_row.cache_clear()
    assert current_row() is default
    cache.unlink()
    heuristics._calibrated_row.cache_clear()
    assert current_row() is default


@pytest.mark.parametrize("content", ["", "{", "[]", '{"row": "none"}', '{"row": [], "processor": "PROCESSOR"}'])
def test_a_damaged_calibration_is_told_of_and_not_used(cache: Path, content: str) -> None:
    default = current_row()
    heuristics._calibrated_row.cache_clear()
    cache.parent.mkdir()
    cache.write_text(content.replace("PROCESSOR", eligibility.processor_class()))
    with pytest.warns(UserWarning, match="is not a valid calibration and is ignored"):
        assert current_row() is default


@pytest.mark.needs_native
def test_explain_says_which_row_decided() -> None:
    for name, chosen in (("amx", "sdpa"), ("avx512", "dense")):
        with using_row(ROWS[name]):
            explanation = explain(*TENSORS)
            assert (explanation.chosen, explanation.row) == (chosen, name)
            assert f"{chosen} runs" in str(explanation).splitlines()[0]
            assert f"by the machine row {name!r}" in str(explanation)
            assert attend(*TENSORS).shape == TENSORS[0].shape
    assert explain(*TENSORS, implementation="sdpa").row is None
    assert explain(*TENSORS, normalizer="sparsemax").row is None


def test_each_type_has_its_own_limits() -> None:
    row = MachineRow("one", "nowhere", 1, 2, 3, 4, 5, 6, table=None, table_gradients=None)
    limits = [
        row.dense_keys(dtype, with_gradients=with_gradients, with_table=False)
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
        for with_gradients in (False, True)
    ]
    assert limits == [1, 2, 3, 4, 5, 6]
