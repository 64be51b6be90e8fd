from __future__ import annotations

import json
from pathlib import Path

import pytest

LINES = "fr | mardi 3 mars 2026\nen | 3/3/26\n"


def test_an_export_is_compared_and_translates(attent, run_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    sample, there = tmp_path / "lines.txt", tmp_path / "there"
    sample.write_text(LINES, encoding="utf-8")
    done = attent("export", run_folder, "--to", "ctranslate2", "--out", there, "--source", sample)
    assert (done.code, done.err) == (0, [f"writing {run_folder} for ctranslate2, and comparing both engines"])
    # two updates leave a model undecided, and rounding may decide
    assert done.out[0] == f"compared on 2 lines of {sample}"
    differences = [line.split(" of ")[1] for line in done.out[1:-1] if line[0] != " "]
    assert differences == ["2 lines differ from attent's own"] * 2
    assert done.out[-1] == str(there)
    translate = ("translate", run_folder, sample, "--max-length", 5)
    assert attent(*translate, "--engine", "ctranslate2", "--exported", there).out == attent(*translate).out


def test_weights_in_eight_bits_are_judged_beside_our_own_on_the_validation(
    attent, run_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    export = ("export", run_folder, "--to", "ctranslate2", "--quantization", "int8", "--out", tmp_path / "there")
    done = attent(*export)
    assert done.out[0] == "compared on 8 lines of the run's validation"
    scores = [line for line in done.out if line.startswith("  attent: BLEU ")]
    assert len(scores) == 2
    assert all("; ctranslate2, int8: BLEU " in line for line in scores)
    sample, references = tmp_path / "lines.txt", tmp_path / "references.txt"
    sample.write_text(LINES, encoding="utf-8")
    references.write_text("2026-03-03\n1-1-1\n", encoding="utf-8")
    done = attent(*export, "--source", sample, "--target", references)
    assert done.out[0] == f"compared on 2 lines of {sample} and {references}"
    comparison = json.loads((tmp_path / "there" / "export.json").read_text(encoding="utf-8"))["comparison"]
    assert (comparison["lines"], len(comparison["beam 5 BLEU and chrF2"])) == (2, 2)


@pytest.mark.slow
def test_an_export_to_onnx_translates_as_attent_does(attent, run_folder: Path, tmp_path: Path) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path / "there"
    assert attent("export", run_folder, "--to", "onnx", "--out", folder).out[-1] == str(folder)
    for options in ((), ("--beam", 3, "--n-best", 2), ("--source", "--seed", 3), ("--prefix", "20")):
        arguments = ("translate", run_folder, "en | 3/3/2026", "--max-length", 6, *options)
        reference, actual = attent(*arguments, "--engine", "onnx", "--exported", folder), attent(*arguments)
        assert [line.split(" ||| ")[:2] for line in reference.out] == [line.split(" ||| ")[:2] for line in actual.out]
