from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from attent.data.readers import read_lines
from attent.errors import ArgumentError
from attent.experiments.comparing.captions import MOST, PARTS, PASSES, joined


def test_captions_are_joined_one_to_five_at_a_time(data_folder: Path, tmp_path: Path) -> None:
    folder = data_folder / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    files, test = joined(folder, tmp_path)
    assert joined(folder, tmp_path) == (files, test)
    english = Counter(read_lines(folder / "tok/train.lc.norm.tok.en.gz"))
    trained = [line.split("\t") for line in read_lines(files["train"])]
    # every caption as often as there are passes
    assert sum(len(source.split()) for source, _ in trained) == PASSES * sum(len(text.split()) * times for text, times in english.items())
    assert max(len(source.split()) for source, _ in trained) > 60
    assert 29_000 * PASSES / MOST < len(trained) < 29_000 * PASSES
    each = 1000 // 15
    assert len(test) == MOST * each
    tested = Counter(read_lines(folder / "tok/test_2016_flickr.lc.norm.tok.en.gz"))
    assert {pair.source for pair in test[:each]} <= set(tested)
    # no caption is in two of them
    words = Counter(word for text in tested.elements() for word in text.split())
    assert Counter(word for pair in test for word in pair.source.split()) <= words
    means = [sum(len(pair.source.split()) for pair in test[at : at + each]) / each for at in range(0, len(test), each)]
    assert means == pytest.approx([number * means[0] for number in range(1, MOST + 1)], rel=0.1)


def test_captions_of_another_folder_are_not_taken_for_those_joined_before(tmp_path: Path) -> None:
    for name, word in (("one", "dog"), ("other", "cat")):
        (tmp_path / name / "tok").mkdir(parents=True)
        for part in PARTS.values():
            for language in ("en", "de"):
                with gzip.open(tmp_path / name / f"tok/{part}.lc.norm.tok.{language}.gz", "wt") as file:
                    file.writelines(f"{word} {number}\n" for number in range(15))
    found = joined(tmp_path / "one", tmp_path / "to")
    assert joined(tmp_path / "one", tmp_path / "to") == found
    with pytest.raises(ArgumentError, match=r"train.tsv holds other captions than those of .*other: name another folder with --out"):
        joined(tmp_path / "other", tmp_path / "to")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"is no folder of Multi30k, it has no tok/train.lc.norm.tok.en.gz: attent data multi30k --to"):
        joined(tmp_path, tmp_path / "to")
