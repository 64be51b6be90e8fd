from __future__ import annotations

import gzip
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError, DataError
from attent.experiments.corpora import (
    MAX_JOINED,
    MULTI30K,
    PASSES,
    bitext,
    join_captions,
    join_dates,
    load_pairs,
    synthetic_pairs,
)
from attent.tasks.dates import DatesSettings
from attent.text.readers import read_lines
from attent.text.text import Pair


def test_sentences_are_made_up_as_long_and_as_uneven_as_captions() -> None:
    pairs = synthetic_pairs(500, number=4000, length=14.0, spread=0.3)
    assert pairs == synthetic_pairs(500, number=4000, length=14.0, spread=0.3)
    lengths = np.array([[len(pair.source.split()), len(pair.target.split())] for pair in pairs])
    assert lengths.mean(0) == pytest.approx([14, 14], rel=0.03)
    assert np.log(lengths[:, 0]).std() == pytest.approx(0.3, rel=0.1)
    assert np.corrcoef(lengths.T)[0, 1] > 0.8
    counts = Counter(word for pair in pairs for word in pair.source.split())
    # Zipf: the first word comes twice as often as the second and ten times as often as the tenth
    assert counts["w0"] / counts["w1"] == pytest.approx(2, rel=0.1)
    assert counts["w0"] / counts["w9"] == pytest.approx(10, rel=0.15)


def test_lengths_without_spread_are_one_length() -> None:
    pairs = synthetic_pairs(50, number=7, length=9, spread=0)
    assert {len(text.split()) for pair in pairs for text in (pair.source, pair.target)} == {9}


def test_without_a_path_text_is_made_up_and_its_vocabulary_fits() -> None:
    pairs, tokenizer, name = load_pairs(None, 300)
    assert name == "made-up sentences"
    assert tokenizer.size <= 300
    assert bitext(pairs[:40], tokenizer).source.lengths.tolist() == [len(pair.source.split()) for pair in pairs[:40]]


def test_multi30k_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    for name, text in zip(
        MULTI30K["train"], ("a dog runs\na cat sleeps\n", "ein hund rennt\neine katze schläft\n"), strict=True
    ):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    pairs, tokenizer, name = load_pairs(tmp_path, 300)
    assert list(pairs) == [Pair("a dog runs", "ein hund rennt"), Pair("a cat sleeps", "eine katze schläft")]
    assert tokenizer.decode(tokenizer.encode("ein hund")) == "ein hund"
    assert "Multi30k" in name


def test_pairs_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one\teins\n\ntwo\tzwei\n", encoding="utf-8")
    pairs, _, name = load_pairs(tmp_path / "pairs.tsv", 290)
    assert [pair.target for pair in pairs] == ["eins", "zwei"]
    assert name == "pairs.tsv"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no folder of Multi30k"):
        load_pairs(tmp_path, 300)
    with pytest.raises(ArgumentError, match=r"named \.tsv or \.jsonl"):
        load_pairs(tmp_path / "a.txt", 300)
    with pytest.raises(DataError, match="cannot be read"):
        load_pairs(tmp_path / "a.tsv", 300)
    (tmp_path / "bare.tsv").write_text("no tab\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no pair"):
        load_pairs(tmp_path / "bare.tsv", 300)
    with pytest.raises(ArgumentError, match="more than its 4 special ids"):
        load_pairs(None, 4)


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
    each = 1000 // 15
    assert len(test) == MAX_JOINED * each
    tested = Counter(read_lines(folder / "tok/test_2016_flickr.lc.norm.tok.en.gz"))
    assert {pair.source for pair in test[:each]} <= set(tested)
    # no caption is in two of them
    words = Counter(word for text in tested.elements() for word in text.split())
    assert Counter(word for pair in test for word in pair.source.split()) <= words
    means = [sum(len(pair.source.split()) for pair in test[at : at + each]) / each for at in range(0, len(test), each)]
    assert means == pytest.approx([number * means[0] for number in range(1, MAX_JOINED + 1)], rel=0.1)


def test_dates_are_joined_one_to_three_at_a_time(tmp_path: Path) -> None:
    sizes = {
        "training_pairs": 50,
        "validation_pairs": 15,
        "held_out_dates": 99,
        "held_out_pairs": 30,
        "held_out_combinations": 2,
    }
    settings = DatesSettings.model_validate({"locales": ("en", "fr"), "untagged": 0.0} | sizes)
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
    found = join_captions(tmp_path / "one", tmp_path / "to")
    assert join_captions(tmp_path / "one", tmp_path / "to") == found
    with pytest.raises(
        ArgumentError, match=r"train.tsv holds other pairs than those to be joined now: name another folder with --out"
    ):
        join_captions(tmp_path / "other", tmp_path / "to")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"is no folder of Multi30k, it has no tok/train.lc.norm.tok.en.gz: attent data multi30k --out",
    ):
        join_captions(tmp_path, tmp_path / "to")
