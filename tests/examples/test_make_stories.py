"""The script that makes stories: its files, and options that it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from make_stories import main

REFUSED = {
    "--kinds four": "unknown kind of question 'four' (known: count, list, one, three, two, yes-no)",
    "--kinds one,one": "--kinds names a kind twice: one,one",
    "--stories 0": "argument --stories: must be at least 1, got 0",
    "--stories 10000001": "training_stories: input should be less than or equal to 10000000",
    "--seed -1": "argument --seed: must be at least 0, got -1",
    "--held-out many": "argument --held-out: invalid number value: 'many'",
    "--sentences 3": "unrecognized arguments: --sentences 3",
}


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_stories.py"])


def test_stories_come_with_their_supporting_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new"
    make = ["--out", str(out), "--kinds", "one, count", "--stories", "11", "--held-out", "5"]
    main(make)
    assert capsys.readouterr().out == f"11 stories to train on, 5 to validate on and 5 to test on, in {out}\n"
    story = json.loads((out / "test.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    support, question, answer = story["sentences"][story["support"][0]], story["question"], story["answer"]
    assert story["kind"] == "one" and answer in support
    assert (out / "test.tsv").read_text(encoding="utf-8").endswith(f"{question}\t{answer}\n")
    main([*make, "--with-support"])
    assert (out / "test.tsv").read_text(encoding="utf-8").endswith(f"{question}\t{support} {answer}\n")


@pytest.mark.parametrize(("options", "message"), REFUSED.items())
def test_a_wrong_option_is_one_line(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--out", str(tmp_path / "new"), *options.split()])
    assert (exited.value.code, capsys.readouterr().err) == (2, f"make_stories.py: {message}\n")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as exited:
        main(["--out", str(tmp_path / "file" / "new"), "--stories", "6", "--held-out", "6"])
    (line,) = capsys.readouterr().err.splitlines()
    assert exited.value.code == 2 and "cannot be written" in line
