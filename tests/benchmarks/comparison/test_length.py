import gzip
import itertools
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from comparison import trainings
from comparison.length import (
    MAX_JOINED,
    MIN_SENTENCES,
    MULTI30K,
    PASSES,
    compare,
    join_captions,
    join_dates,
    length_ranges,
)

from attent.errors import ArgumentError
from attent.runs.config import read_config
from attent.tasks.dates import DatesSettings
from attent.text.readers import read_lines


def test_ranges_hold_every_row_once_and_enough_of_them() -> None:
    lengths = [1] * 5 + [7] * 40 + [12] * 30 + [33] * 3
    ranges = length_ranges(lengths, 5)
    assert sorted(row for rows in ranges for row in rows) == list(range(len(lengths)))
    # lengths 1 to 5 are too few, and so are 31 to 35
    assert [len(rows) for rows in ranges] == [45, 33]
    assert all(len(rows) >= MIN_SENTENCES for rows in ranges)
    assert length_ranges([3], 5) == [[0]]


@pytest.mark.slow
def test_models_are_judged_by_length(options, silent) -> None:
    messages: list[str] = []
    comparison = compare(options(models=["none", "luong"], seeds=2), say=messages.append, progress=silent)
    assert messages[0] == "4 trainings, none already finished"
    assert messages[1:5] == ["1/4 dates/none-1", "2/4 dates/none-2", "3/4 dates/luong-1", "4/4 dates/luong-2"]
    summary, by_length = comparison.report.tables
    assert [row["model"] for row in summary.rows] == ["RNN, fixed vector", "RNN, Luong"]
    assert all(
        row["updates"] == 2 and row["parameters"] > 100 and len(row["values"]["by_seed"]) == 2 for row in summary.rows
    )
    (figure,) = comparison.figures
    assert [line.name for line in figure.series] == ["RNN, fixed vector", "RNN, Luong"]
    # of 30 dates 5 lines of each number from 1 to 3
    assert sum(point.sentences for point in figure.series[0].points) == 15
    assert len(by_length.rows) == len(figure.series[0].points)
    # once more, nothing is left to train
    messages.clear()
    repeated = compare(options(models=["none", "luong"], seeds=2), say=messages.append, progress=silent)
    assert messages[0] == "4 trainings, 4 of them already finished"
    assert len(messages) == 5
    assert all(message.startswith("translating 15 texts") for message in messages[1:])
    assert repeated.values()["figures"] == comparison.values()["figures"]


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
    comparison = compare(options(models=["luong"], data=tmp_path / "few"), say=lambda line: None, progress=silent)
    assert [figure.name for figure in comparison.figures] == ["length-dates", "length-captions"]
    assert comparison.figures[1].y == "BLEU, 0 to 100"
    assert sum(point.sentences for point in comparison.figures[1].series[0].points) == 30
    assert read_config(options().out / "captions/luong-1").model.scaled_score


def test_captions_are_joined_one_to_five_at_a_time(data_folder: Path, tmp_path: Path) -> None:
    folder = data_folder / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    files, test = join_captions(folder, tmp_path)
    assert join_captions(folder, tmp_path) == (files, test)
    english = Counter(read_lines(folder / "tok/train.lc.norm.tok.en.gz"))
    trained = [line.split("\t") for line in read_lines(files["train"])]
    # every caption as often as there are passes
    assert sum(len(source.split()) for source, _ in trained) == PASSES * sum(
        len(text.split()) * times for text, times in english.items()
    )
    assert max(len(source.split()) for source, _ in trained) > 60
    assert 29_000 * PASSES / MAX_JOINED < len(trained) < 29_000 * PASSES
    count = 1000 // 15
    assert len(test) == MAX_JOINED * count
    tested = Counter(read_lines(folder / "tok/test_2016_flickr.lc.norm.tok.en.gz"))
    assert {pair.source for pair in test[:count]} <= set(tested)
    # no caption is in two of them
    words = Counter(word for text in tested.elements() for word in text.split())
    assert Counter(word for pair in test for word in pair.source.split()) <= words
    means = [
        sum(len(pair.source.split()) for pair in test[at : at + count]) / count for at in range(0, len(test), count)
    ]
    assert means == pytest.approx([number * means[0] for number in range(1, MAX_JOINED + 1)], rel=0.1)


def test_dates_are_joined_one_to_three_at_a_time(tmp_path: Path) -> None:
    sizes = {"training_pairs": 50, "validation_pairs": 15, "held_out_dates": 99, "held_out_pairs": 30}
    settings = DatesSettings(locales=("en", "fr"), untagged=0.0, held_out_combinations=2, **sizes)
    files, test = join_dates(settings, tmp_path)
    assert join_dates(settings, tmp_path) == (files, test)
    assert [len(pair.target.split()) for pair in test] == [1] * 5 + [2] * 5 + [3] * 5
    dates = [date for pair in test for date in pair.target.split()]
    assert all(len(date) == len("2026-03-03") for date in dates)
    # a tag before each date
    assert all(pair.source.count(" | ") == len(pair.target.split()) for pair in test)
    trained = [date for line in read_lines(files["train"]) for date in line.split("\t")[1].split()]
    assert len(trained) == PASSES * 50
    assert not set(trained) & set(dates)


def test_captions_of_another_folder_are_not_taken_for_those_joined_before(tmp_path: Path) -> None:
    for name, word in (("one", "dog"), ("other", "cat")):
        (tmp_path / name / "tok").mkdir(parents=True)
        for file_name in itertools.chain(*MULTI30K.values()):
            with gzip.open(tmp_path / name / file_name, "wt") as file:
                file.writelines(f"{word} {number}\n" for number in range(15))
    captions = join_captions(tmp_path / "one", tmp_path / "to")
    assert join_captions(tmp_path / "one", tmp_path / "to") == captions
    with pytest.raises(ArgumentError, match=r"train.tsv contains other pairs: name"):
        join_captions(tmp_path / "other", tmp_path / "to")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"does not contain Multi30k's tok/train.lc.norm.tok.en.gz:"):
        join_captions(tmp_path, tmp_path / "to")
