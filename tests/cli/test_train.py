from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_training_leaves_a_run_that_translates(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    done = attent("train", "--config", settings_file, "--out", out, "--updates", 3, "--seed", 5, "--threads", 1, "--set", "model.heads=4")
    assert done.code == 0
    assert done.out[0] == f"run: {out}"
    assert [line.split("  ")[0] for line in done.out[1:]] == ["held-out dates", "held-out combinations"]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["heads"] == 4
    assert (config["training"]["updates"], config["training"]["seed"]) == (3, 5)
    assert attent("translate", out, "en | 3/3/2026").code == 0


def test_a_run_is_replaced_only_if_asked(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    assert attent("train", "--config", settings_file, "--out", out).code == 0
    again = attent("train", "--config", settings_file, "--out", out)
    assert again.code == 2
    assert again.err[-1] == f"attent: {out} is there already"
    assert attent("train", "--config", settings_file, "--out", out, "--replace").code == 0


def test_runs_are_named_after_their_settings(attent, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert attent("train", "--config", settings_file).out[0] == f"run: {Path('runs') / 'small'}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "training.learningrate=1"], "did you mean 'learning_rate'"),
        (["--set", "model.heads=3"], "heads must divide width"),
        (["--minutes", "-1"], "training.minutes"),
        (["--corpus", "dates"], "say what to train"),
        (["--out", __file__ + "/run"], "cannot be written"),
    ],
)
def test_what_cannot_be_trained(attent, settings_file: Path, tmp_path: Path, options: list[str], says: str) -> None:
    done = attent("train", "--config", settings_file, *(["--out", tmp_path / "run"] if "--out" not in options else []), *options)
    assert done[:2] == (2, [])
    assert says in done.err[-1]
    assert list(tmp_path.iterdir()) == []
