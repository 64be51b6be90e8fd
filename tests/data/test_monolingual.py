import gzip
from pathlib import Path

import numpy as np
import pytest

from attent.data.monolingual import encoded, lent, text, tokenizer
from attent.data.settings import LinesSettings
from attent.errors import DataError

LINES = [f"a {'b ' * number}c" for number in range(1, 41)]


def written(path: Path, lines: list[str]) -> str:
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_lines_are_read_split_encoded_and_lent(tmp_path: Path, name: str) -> None:
    settings = LinesSettings(train=written(tmp_path / name, [*LINES, "", "  "]), maximum_length=31)
    corpus = text(settings)
    assert (len(corpus.train), len(corpus.validation)) == (38, 2)
    made = tokenizer(corpus, settings)
    data = encoded(corpus, settings, made, length_multiple=1)
    assert data.lines.lengths.tolist() == [len(made.encode(pair.source)) for pair in corpus.train if len(pair.source.split()) <= 31]
    said = " ".join(line for report in corpus.reports for line in report.summary())
    assert "42 lines read" in said
    assert "2 dropped: empty line (lines 41, 42)" in said
    assert "dropped: longer than the maximum length" in said
    other = lent(corpus.folder.path, settings, made, length_multiple=1)
    rows = np.arange(len(data))
    assert (other.batch(rows).token_ids == data.batch(rows).token_ids).all()


def test_validation_of_its_own_is_not_trained_on(tmp_path: Path) -> None:
    settings = LinesSettings(train=written(tmp_path / "train.txt", LINES), valid=written(tmp_path / "valid.txt", LINES[:3]))
    corpus = text(settings)
    assert [pair.source for pair in corpus.validation] == LINES[:3]
    assert len(corpus.train) == 37
    assert "3 dropped: also in validation (lines 1, 2, 3)" in " ".join(corpus.reports[0].summary())


@pytest.mark.parametrize(
    ("lines", "message"),
    [(["", " "], "no line holds text"), (["one"], "at least 2 lines are needed to train and to validate, got 1")],
)
def test_too_little_text_is_said(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(LinesSettings(train=written(tmp_path / "train.txt", lines)))


def test_lines_that_are_all_too_long_are_said(tmp_path: Path) -> None:
    settings = LinesSettings(train=written(tmp_path / "train.txt", LINES), maximum_length=2)
    corpus = text(settings)
    with pytest.raises(DataError, match="every one of the 38 lines is longer than the maximum length of 2 tokens"):
        encoded(corpus, settings, tokenizer(corpus, settings))


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(DataError, match=r"none\.txt: empty"):
        text(LinesSettings(train=str(tmp_path / "none.txt")))
