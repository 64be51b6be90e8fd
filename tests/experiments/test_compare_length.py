from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest

from attent.errors import UnknownNameError
from attent.experiments import trainings
from attent.experiments.compare_length import MIN_SENTENCES, compare, length_ranges
from attent.runs.config import read_config
from attent.text.readers import read_lines


def test_ranges_hold_every_row_once_and_enough_of_them() -> None:
    lengths = [1] * 5 + [7] * 40 + [12] * 30 + [33] * 3
    found = length_ranges(lengths, 5)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    # lengths 1 to 5 are too few, and so are 31 to 35
    assert [len(rows) for rows in found] == [45, 33]
    assert all(len(rows) >= MIN_SENTENCES for rows in found)
    assert length_ranges([3], 5) == [[0]]


def test_models_are_judged_by_length(options, silent) -> None:
    said: list[str] = []
    found = compare(options(models=["none", "luong"], seeds=2), say=said.append, progress=silent)
    assert said[0].startswith("4 trainings, none finished already: at most about ")
    assert said[1:5] == ["1/4 dates/none-1", "2/4 dates/none-2", "3/4 dates/luong-1", "4/4 dates/luong-2"]
    summary, by_length = found.report.tables
    assert [row["model"] for row in summary.rows] == ["RNN, fixed vector", "RNN, Luong"]
    assert all(
        row["updates"] == 2 and row["parameters"] > 100 and len(row["values"]["by_seed"]) == 2 for row in summary.rows
    )
    (figure,) = found.figures
    assert [line.name for line in figure.series] == ["RNN, fixed vector", "RNN, Luong"]
    # of 30 dates 5 lines of each number from 1 to 3
    assert sum(point.sentences for point in figure.series[0].points) == 15
    assert len(by_length.rows) == len(figure.series[0].points)
    # once more, nothing is left to do
    said.clear()
    again = compare(options(models=["none", "luong"], seeds=2), say=said.append, progress=silent)
    assert said[0].startswith("4 trainings, 4 of them finished already")
    assert len(said) == 1
    assert again.values()["figures"] == found.values()["figures"]


@pytest.mark.slow
def test_captions_are_judged_by_bleu_where_their_folder_is_given(
    options, silent, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data_folder / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    (tmp_path / "few" / "tok").mkdir(parents=True)
    for path in (folder / "tok").glob("*.lc.norm.tok.??.gz"):
        with gzip.open(tmp_path / "few" / "tok" / path.name, "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in islice(read_lines(path), 100))
    monkeypatch.setattr(trainings, "PIECES", 300)
    sizes = {"embedding_width": 8, "width": 8, "encoder_width": 8}
    monkeypatch.setattr(trainings, "RNN_ON_CAPTIONS", trainings.RNN_ON_CAPTIONS | sizes)
    found = compare(options(models=["luong"], data=tmp_path / "few"), say=lambda line: None, progress=silent)
    assert [figure.name for figure in found.figures] == ["length-dates", "length-captions"]
    assert found.figures[1].y == "BLEU, 0 to 100"
    assert sum(point.sentences for point in found.figures[1].series[0].points) == 30
    assert read_config(options().out / "captions/luong-1").model.scaled_score


def test_an_unknown_model_is_refused_before_anything_is_made(options) -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'rnn'"):
        compare(options(models=["rnn"]))
    assert not options().out.exists()
