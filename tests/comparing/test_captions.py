from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from attent.comparing.captions import MOST, PASSES, TESTED, joined
from attent.data.reading import lines
from attent.errors import ArgumentError


def test_captions_are_joined_one_to_five_at_a_time(data_folder: Path, tmp_path: Path) -> None:
    folder = data_folder / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    files, test = joined(folder, tmp_path)
    assert joined(folder, tmp_path) == (files, test)
    english = Counter(lines(folder / "tok/train.lc.norm.tok.en.gz"))
    trained = [line.split("\t") for line in lines(files["train"])]
    # every caption as often as there are passes
    assert sum(len(source.split()) for source, _ in trained) == PASSES * sum(len(text.split()) * times for text, times in english.items())
    assert max(len(source.split()) for source, _ in trained) > 60
    assert 29_000 * PASSES / MOST < len(trained) < 29_000 * PASSES
    assert len(test) == MOST * TESTED
    assert {pair.source for pair in test[:TESTED]} <= set(lines(folder / "tok/test_2016_flickr.lc.norm.tok.en.gz"))
    means = [sum(len(pair.source.split()) for pair in test[at : at + TESTED]) / TESTED for at in range(0, len(test), TESTED)]
    assert means == pytest.approx([number * means[0] for number in range(1, MOST + 1)], rel=0.1)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"is no folder of Multi30k, it has no tok/train.lc.norm.tok.en.gz: attent data multi30k --to"):
        joined(tmp_path, tmp_path / "to")
