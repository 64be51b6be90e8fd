from pathlib import Path
from typing import Any

import pytest
import random_translators

pytest.importorskip("transformers", reason="transformers is not installed")
LINE = "The dog runs."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    random_translators.m2m100(folder, nllb=True)
    return folder


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from attent.runs.hugging_face import import_run

    import_run(model, out := tmp_path_factory.mktemp("run") / "run", "eng_Latn", "deu_Latn")
    return out


def test_a_folder_becomes_a_run(attent: Any, model: Path, tmp_path: Path) -> None:
    languages = ("--source-language", "eng_Latn", "--target-language", "fra_Latn")
    done = attent("import", model, "--out", tmp_path / "run", *languages)
    assert done.code == 0
    assert done.out == [f"model (transformers m2m_100, licence: not named): {tmp_path / 'run'}"]
    search = "--beam 5 --length-penalty 1 --length-form length"
    assert done.err[-1].endswith(f"attent translate {tmp_path / 'run'} {search}")
    repeated = attent("import", model, "--out", tmp_path / "run", *languages)
    assert (repeated.code, repeated.err) == (2, [f"attent: {tmp_path / 'run'} already exists"])
    done = attent("import", model, "--out", tmp_path / "second")
    assert done.code == 2 and "--source-language" in done.err[-1]
    says = f"attent: {model} is a Hugging Face model, not a run folder: convert it with attent import"
    assert attent("translate", model, LINE).err == [says]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_every_command_takes_the_run(attent: Any, run: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{LINE}\tEin Hund läuft.\nL'été\tDer Sommer\n", "utf-8")
    (tmp_path / "lines.txt").write_text(f"{LINE}\nL'été\n", "utf-8")
    options = ("--beam", 4, "--length-form", "length", "--alignments")
    translated = attent("translate", run, tmp_path / "lines.txt", *options)
    assert (translated.code, len(translated.out)) == (0, 2)
    assert attent("score", run, tmp_path / "pairs.tsv").code == 0
    assert attent("evaluate", run, "--source", tmp_path / "lines.txt", "--target", tmp_path / "lines.txt").code == 0
    aligned = attent("align", run, tmp_path / "pairs.tsv")
    assert (aligned.code, len(aligned.out)) == (0, 2)
    # links of the three words, none of the marks around them
    assert {int(end) for link in aligned.out[0].split() for end in link.split("-")} <= {0, 1, 2}
    assert attent("show", run, LINE, "--out", tmp_path / "page.html").code == 0
    assert attent("walk", run, LINE).code == 0
    assert attent("describe", run).code == 0


def test_a_folder_of_models_becomes_a_folder_of_runs(attent: Any, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        random_translators.marian(tmp_path / "models" / name)
    (tmp_path / "models" / "notes").mkdir()
    weights = tmp_path / "models" / "b" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    done = attent("import", tmp_path / "models", "--out", tmp_path / "runs")
    assert done.code == 2 and done.out == [str(tmp_path / "runs" / name) for name in ("a", "c")]
    assert any("models/b" in line and "model.safetensors" in line for line in done.err)
    # the others are left, and what failed is tried again
    weights.write_bytes(content)
    done = attent("import", tmp_path / "models", "--out", tmp_path / "runs")
    assert done.code == 0 and done.out == [str(tmp_path / "runs" / "b")]
    assert attent("runs", tmp_path / "runs").code == 0
