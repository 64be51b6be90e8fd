from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_weights_in_eight_bits(attent, run_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    there = tmp_path / "there"
    done = attent("export", run_folder, "--to", "ctranslate2", "--quantization", "int8", "--out", there)
    assert (done.code, done.out, done.err) == (0, [str(there)], [])
    assert json.loads((there / "export.json").read_text(encoding="utf-8"))["quantisation"] == "int8"


@pytest.mark.slow
def test_graphs_for_onnx(attent, run_folder: Path, generating_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    for run, files in ((run_folder, ["encoder.onnx", "step.onnx"]), (generating_folder, ["model.onnx"])):
        folder = tmp_path / run.name
        assert attent("export", run, "--to", "onnx", "--out", folder).out == [str(folder)]
        assert sorted(path.name for path in folder.glob("*.onnx")) == files


def test_runs_of_several_tasks_as_pages(attent, run_folder: Path, generating_folder: Path, tmp_path: Path) -> None:
    for run in (run_folder, generating_folder):
        page = tmp_path / f"{run.name}.html"
        done = attent("export", run, "--to", "html", "--out", page, "--example", "<b> a text", "--quantization", "int8")
        assert (done.code, done.out, done.err) == (0, [str(page)], [])
        assert '"examples":["\\u003cb> a text"]' in page.read_text(encoding="utf-8")
    other = tmp_path / "other.html"
    other.write_text("mine", encoding="utf-8")
    done = attent("export", run_folder, "--to", "html", "--out", other)
    assert (done.code, done.err) == (2, [f"attent: {other} already exists and is not the page of a run"])
