from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_multi30k_is_put_into_a_folder(attent, tmp_path: Path, data_folder: Path) -> None:
    done = attent("data", "multi30k", "--out", tmp_path, "--from", data_folder / "multi30k")
    assert (done.code, done.out) == (0, [f"21 files in {tmp_path}"])
    assert "fetching train.en.gz" in done.err
    assert (tmp_path / "tok" / "val.lc.norm.tok.en.gz").is_file()


def test_what_is_not_there_is_one_line(attent, tmp_path: Path) -> None:
    done = attent("data", "multi30k", "--out", tmp_path, "--from", tmp_path / "none")
    assert done.code == 2 and done.err[-1].endswith("cannot be read: No such file or directory")
    assert any("multi30k" in line for line in attent("data", "--help").out)


def test_stories_come_with_their_supporting_sentences(attent, tmp_path: Path) -> None:
    out = tmp_path / "new"
    make = ("data", "stories", "--out", out, "--kinds", "one, count", "--stories", 11, "--held-out", 5)
    assert attent(*make).out == [f"11 stories to train on, 5 to validate on and 5 to test on, in {out}"]
    story = json.loads((out / "test.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    support, question, answer = story["sentences"][story["support"][0]], story["question"], story["answer"]
    assert story["kind"] == "one" and answer in support
    assert (out / "test.tsv").read_text(encoding="utf-8").endswith(f"{question}\t{answer}\n")
    assert attent(*make, "--with-support").code == 0
    assert (out / "test.tsv").read_text(encoding="utf-8").endswith(f"{question}\t{support} {answer}\n")


def test_canvases_come_with_their_captions(attent, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    out = tmp_path / "new"
    done = attent("data", "canvases", "--out", out, "--pictures", 7, "--held-out", 2, "--seed", 3)
    parts = "7 pictures of train, 2 pictures of valid, 2 pictures of test, 2 pictures of combinations"
    assert (done.code, done.out) == (0, [f"{parts}, in {out}"])
    name, caption = (out / "combinations.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")
    assert (out / name).is_file() and " , " in caption


def test_phrases_come_with_their_trees(attent, tmp_path: Path) -> None:
    done = attent("data", "phrases", "--out", tmp_path / "new", "--sentences", 11, "--held-out", 5)
    assert done.out == [f"11 sentences to train on, 5 to validate on and 5 to test on, in {tmp_path / 'new'}"]
    first = (tmp_path / "new" / "test.tsv").read_text(encoding="utf-8").splitlines()[0]
    assert first == "the black dog sings\tle chien noir chante"
    assert len((tmp_path / "new" / "train.conllu").read_text(encoding="utf-8").split("\n\n")) == 12
