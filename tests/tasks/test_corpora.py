"""What a run learns from: dates, or text in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attent.errors import DataError
from attent.tasks.settings import parse
from attent.tasks.task import Vocabularies
from attent.tasks.translation.task import TextFilesCorpus, TranslationTask
from attent.text.settings import TextSettings

TRAINING = "[training]\nupdates = 2\nbatch_pairs = 8\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    lines = [f"a{'b' * number}\tc{'d' * number}" for number in range(1, 41)]
    file.write_text("\n".join([*lines, "", "x\ty\tz"]) + "\n", encoding="utf-8")
    return file


def test_dates_are_the_corpus_unless_text_is() -> None:
    small = (
        "[dates]\nlocales = ['en']\ntraining_pairs = 11\nvalidation_pairs = 3\nheld_out_pairs = 2\n"
        "held_out_combinations = 1\n"
    )
    settings = parse(small + TRAINING, "some.toml")
    built = TranslationTask().corpus(settings)
    assert list(built.held_out) == ["held-out dates", "held-out combinations"]
    assert (len(built.validation), built.translated) == (3, 3)
    source, target = built.learn_tokenizers()
    encoded = built.encode(source, target, None)
    assert len(encoded) == 11
    assert list(built.table) == ["dates"]
    reference = TranslationTask().open_shared(
        settings, built.share(encoded), Vocabularies(built.kinds, (source, target))
    )
    rows = np.arange(11)
    assert reference.source.pad(rows).tolist() == encoded.source.pad(rows).tolist()
    assert reference.target.pad(rows).tolist() == encoded.target.pad(rows).tolist()


def test_text_is_read_split_and_encoded(pairs: Path) -> None:
    read = TranslationTask().corpus(
        parse(f"[text]\ntrain = {str(pairs)!r}\ntokenizer = 'char'\n" + TRAINING, "some.toml")
    )
    source, target = read.learn_tokenizers()
    assert len(read.encode(source, target, None)) + len(read.validation) == 40
    assert source.decode(source.encode("abb")) == "abb"
    assert read.kinds == {"source": "char", "target": "char"}
    assert read.table["text"]["train"] == str(pairs)
    message = " ".join(read.report())
    assert "42" in message
    assert "empty" in message


def test_the_measures_of_text_end_with_the_one_it_is_judged_by(pairs: Path) -> None:
    scores = TextFilesCorpus(TextSettings(train=str(pairs), tokenizer="char")).measure(["a b c d"], ["a b c d"])
    assert list(scores) == ["exact match", "chrF2", "BLEU"]
    assert scores["BLEU"] == pytest.approx(100)


def test_a_file_without_pairs_is_said(tmp_path: Path) -> None:
    (tmp_path / "none.tsv").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="no line holds a pair"):
        TextFilesCorpus(TextSettings(train=str(tmp_path / "none.tsv")))
