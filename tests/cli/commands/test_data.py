import json
from pathlib import Path

import pytest

from attent.cli.app import run


def test_multi30k_is_put_into_a_folder(tmp_path: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "multi30k", "--out", str(tmp_path), "--from", str(data_folder / "multi30k")]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"21 files in {tmp_path}\n"
    assert "fetching train.en.gz" in captured.err
    assert (tmp_path / "tok" / "val.lc.norm.tok.en.gz").is_file()


def test_what_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "multi30k", "--out", str(tmp_path), "--from", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("cannot be read: No such file or directory")


def test_dates_are_labelled_with_their_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size_options = ["--texts", "60", "--held-out", "20"]
    assert run(["data", "date-languages", "--out", str(tmp_path / "new"), "--locales", "fr, nb", *size_options]) == 0
    output, error = capsys.readouterr()
    assert output.startswith("60 texts in 2 languages to train on, 1,000 to validate on and 20 to judge by, in ")
    assert "written alike in several languages" in error
    lines = (tmp_path / "new" / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert {line.split("\t")[1] for line in lines} == {"fr", "nb"}
    assert run(["data", "date-languages", "--out", str(tmp_path), "--locales", "nowhere", *size_options]) == 2
    assert "unknown locale 'nowhere'" in capsys.readouterr().err


def test_stories_come_with_their_supporting_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size_options = ["--stories", "11", "--held-out", "5"]
    assert run(["data", "stories", "--out", str(tmp_path / "new"), "--kinds", "one, count", *size_options]) == 0
    assert (
        capsys.readouterr().out
        == f"11 stories to train on, 5 to validate on and 5 to judge by, in {tmp_path / 'new'}\n"
    )
    (*_, last) = (tmp_path / "new" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    story = json.loads(last)
    assert story["kind"] == "one"
    assert story["answer"] in story["sentences"][story["support"][0]]
    assert (
        (tmp_path / "new" / "test.tsv")
        .read_text(encoding="utf-8")
        .splitlines()[-1]
        .endswith(f"{story['question']}\t{story['answer']}")
    )
    assert (
        run(
            [
                "data",
                "stories",
                "--out",
                str(tmp_path / "new"),
                "--kinds",
                "one, count",
                "--with-support",
                *size_options,
            ]
        )
        == 0
    )
    support, answer = story["sentences"][story["support"][0]], story["answer"]
    assert (
        (tmp_path / "new" / "test.tsv")
        .read_text(encoding="utf-8")
        .endswith(f"{story['question']}\t{support} {answer}\n")
    )
    capsys.readouterr()
    assert run(["data", "stories", "--out", str(tmp_path), "--kinds", "four"]) == 2
    assert "unknown kind of question 'four'" in capsys.readouterr().err
    assert run(["data", "stories", "--out", str(tmp_path), "--kinds", "one,one"]) == 2
    assert "--kinds names a kind twice: one,one" in capsys.readouterr().err


def test_the_corpora_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "--help"]) == 0
    assert "multi30k" in capsys.readouterr().out
