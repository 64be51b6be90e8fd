import json
from pathlib import Path

import numpy as np
import pytest

from attent.cli.app import run as command

TRAIN = ["train", "--task", "classify", "--updates", "2", "--set", "training.validate_every=2"]


@pytest.fixture
def of_texts(tmp_path: Path) -> Path:
    (tmp_path / "a.tsv").write_text("".join(f"text {number}\t{'xy'[number % 2]}\n" for number in range(40)))
    run = tmp_path / "run"
    assert command([*TRAIN, "--labelled", str(tmp_path / "a.tsv"), "--out", str(run), "--set", "labelled.tokenizer=char"]) == 0
    return run


def test_what_is_held_out_is_judged(of_texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert command(["evaluate", str(of_texts), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["examples"], found["labels"]) == (2, ["x", "y"])
    assert np.sum(found["confusion"]) == 2
    assert json.loads((of_texts / "config.json").read_text())["results"]["validation"]["accuracy"] == found["accuracy"]
    capsys.readouterr()
    assert command(["evaluate", str(of_texts)]) == 0
    assert f"accuracy  {found['accuracy']:6.2f} %" in capsys.readouterr().out


def test_other_examples_are_judged(of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.tsv").write_text("some\tx\nmore\ty\nno label\n")
    assert command(["evaluate", str(of_texts), "--labelled", str(tmp_path / "b.tsv")]) == 0
    out, error = capsys.readouterr()
    assert "2 examples" in out
    assert "1 dropped: no tab between text and label (line 3)" in error


def test_a_label_that_the_run_does_not_know_is_refused(of_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    (tmp_path / "b.tsv").write_text("some\tz\n")
    assert command(["evaluate", str(of_texts), "--labelled", str(tmp_path / "b.tsv")]) == 2
    assert "the run does not know the label 'z'; it knows x, y" in capsys.readouterr().err
    np.savez(tmp_path / "v.npz", x=np.random.rand(2, 5, 3), y=["x", "y"])
    assert command(["evaluate", str(of_texts), "--images", str(tmp_path / "v.npz")]) == 2
    assert "the run reads texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--source", "a", "--target", "b"], "--source is for a run that translates, not for one that classifies"),
        (["--beam", "2"], "--beam is for a run that translates, not for one that classifies"),
        (["--against", "a"], "--against is for a run that fills blanks, not for one that classifies"),
        (["--text", "a", "--labelled", "b"], "--labelled is for a run that classifies, not for one that fills blanks"),
    ],
)
def test_options_for_another_task_are_refused(of_texts: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert command(["evaluate", str(of_texts), *options]) == 2
    assert capsys.readouterr() == ("", f"attent: {says}\n")


def test_what_is_too_long_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"text {number}\t{'xy'[number % 2]}\n" for number in range(40)))
    (tmp_path / "b.tsv").write_text("\nsome\tx\n" + "e" * 12 + "\tx\n" + "e" * 11 + "\ty\n")
    limits = ["--set", "labelled.tokenizer=char", "--set", "model.position=learned", "--set", "model.maximum_length=12"]
    assert command([*TRAIN, "--labelled", str(tmp_path / "a.tsv"), "--out", str(tmp_path / "run"), *limits]) == 0
    capsys.readouterr()
    assert command(["evaluate", str(tmp_path / "run"), "--labelled", str(tmp_path / "b.tsv")]) == 0
    out, error = capsys.readouterr()
    assert "2 examples" in out
    assert "1 dropped: longer than the 11 tokens, vectors or patches that this model can read (line 3)" in error
