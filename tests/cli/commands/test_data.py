from __future__ import annotations

from pathlib import Path


def test_multi30k_is_put_into_a_folder(attent, tmp_path: Path, data_folder: Path) -> None:
    done = attent("data", "multi30k", "--out", tmp_path, "--from", data_folder / "multi30k")
    assert (done.code, done.out) == (0, [f"21 files in {tmp_path}"])
    assert "fetching train.en.gz" in done.err
    assert (tmp_path / "tok" / "val.lc.norm.tok.en.gz").is_file()


def test_what_is_not_there_is_one_line(attent, tmp_path: Path) -> None:
    done = attent("data", "multi30k", "--out", tmp_path, "--from", tmp_path / "none")
    assert done.code == 2 and done.err[-1].endswith("cannot be read: No such file or directory")
    assert any("multi30k" in line for line in attent("data", "--help").out)


def test_phrases_come_with_their_trees(attent, tmp_path: Path) -> None:
    done = attent("data", "phrases", "--out", tmp_path / "new", "--sentences", 11, "--held-out", 5)
    assert done.out == [f"11 sentences to train on, 5 to validate on and 5 to test on, in {tmp_path / 'new'}"]
    first = (tmp_path / "new" / "test.tsv").read_text(encoding="utf-8").splitlines()[0]
    assert first == "the black dog sings\tle chien noir chante"
    assert len((tmp_path / "new" / "train.conllu").read_text(encoding="utf-8").split("\n\n")) == 12
