from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.corpus import (
    LabelledCorpus,
    check_inputs,
    count_examples,
    drop_long,
    image_corpus,
    labelled_text_corpus,
)
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs, VectorInputs, encode_rows
from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
from attent.text.tokenizer import CharTokenizer


def npz(folder: Path, **named: object) -> str:
    np.savez(folder / "a.npz", **named)
    return str(folder / "a.npz")


def texts(folder: Path, **settings: object) -> LabelledCorpus:
    lines = [f"text {number}\t{'xy'[number % 2]}" for number in range(40)]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    (folder / "test.tsv").write_text("text 3\ty\nnew\tx\n")
    files = {part: str(folder / f"{part}.tsv") for part in ("train", "test")}
    return labelled_text_corpus(LabelledSettings(**files, **settings))


def test_vectors_are_read(tmp_path: Path) -> None:
    source = npz(tmp_path, x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    corpus = image_corpus(ImagesSettings(source=source))
    assert isinstance(corpus.data, VectorSequences)
    assert isinstance(corpus.inputs.inputs, VectorInputs)
    assert count_examples(source) == (20, False)
    assert encode_rows(corpus.data, corpus.inputs, None).read(corpus.train[:2], None).shape == (2, 5, 3)


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    vectors = npz(tmp_path, x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    for settings, says in (
        ({"source": "nowhere"}, "no pictures at nowhere: it is neither 'digits', nor a folder, nor an .npz"),
        ({"source": "digits", "size": 16}, "images.size does not apply to the digits"),
        ({"source": vectors, "patch": 2}, r"images\.patch does not apply to sequences of vectors"),
    ):
        with pytest.raises((ArgumentError, DataError), match=says):
            image_corpus(ImagesSettings(**settings))
    with pytest.raises(DataError, match="at least two classes are needed, got 7"):
        image_corpus(ImagesSettings(source=npz(tmp_path, x=np.random.rand(20, 5, 3), y=np.full(20, 7))))


def test_texts_that_are_judged_by_are_not_trained_on(tmp_path: Path) -> None:
    corpus = texts(tmp_path)
    assert corpus.inputs == Inputs(labels=("x", "y"), inputs=TextInputs())
    assert [corpus.data[row] for row in corpus.test] == ["text 3", "new"]
    assert [len(rows) for rows in (corpus.train, corpus.validation, corpus.test)] == [37, 2, 2]
    assert "text 3" not in [corpus.data[row] for row in (*corpus.train, *corpus.validation)]
    assert corpus.reports[0].dropped["the text is also in validation"].first == [4]
    assert corpus.classes[corpus.test].tolist() == [1, 0]


def test_texts_that_are_too_long_are_counted(tmp_path: Path) -> None:
    corpus = texts(tmp_path)
    tokenizer = CharTokenizer.learn(corpus.data)
    lengths = encode_rows(corpus.data, corpus.inputs, tokenizer).lengths
    shorter = drop_long(corpus, lengths, 6)
    assert {len(corpus.data[row]) for row in shorter.train} == {6}
    assert corpus.reports[0].dropped["longer than the maximum length"].count == len(corpus.train) - len(shorter.train)
    with pytest.raises(DataError, match="all 37 texts are longer than the maximum length of 3 tokens"):
        drop_long(corpus, lengths, 3)


def test_labels_that_training_lacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "valid.tsv").write_text("new\tz\n")
    with pytest.raises(DataError, match=r"valid\.tsv, line 1: the label 'z' does not occur in training"):
        texts(tmp_path, valid=str(tmp_path / "valid.tsv"))
    (tmp_path / "one.tsv").write_text("a\tx\nb\tx\n")
    with pytest.raises(DataError, match=r"one\.tsv: at least two labels are needed, got x"):
        labelled_text_corpus(LabelledSettings(train=str(tmp_path / "one.tsv")))


def test_a_run_reads_what_it_was_trained_on() -> None:
    wide, narrow = VectorInputs(mean=(0, 0), deviation=(1, 1)), VectorInputs(mean=(0,), deviation=(1,))
    small = PictureInputs(height=4, width=4, colours="grey", patch=2, mean=(0,), deviation=(1,))
    run = Inputs(labels=("a", "b"), inputs=wide)
    check_inputs(run, run)
    for first, second, says in (
        (wide, TextInputs(), "the run reads vectors, and these are texts"),
        (wide, narrow, "the run reads vectors of 2 numbers, and these have 1"),
        (small, small.model_copy(update={"height": 8}), "4 x 4 pixels in grey, and these have 8 x 4 pixels"),
    ):
        with pytest.raises(ArgumentError, match=says):
            check_inputs(*(Inputs(labels=("a", "b"), inputs=inputs) for inputs in (first, second)))
    with pytest.raises(ArgumentError, match=r"the run has 2 classes \(a, b\), and these examples have 4"):
        check_inputs(run, Inputs(labels=(*"abcd",), inputs=wide))


def test_held_out_examples_have_a_digest_that_the_others_do_not_change(tmp_path: Path) -> None:
    def read_images(examples: np.ndarray, classes: np.ndarray) -> LabelledCorpus:
        np.savez(tmp_path / "a.npz", images=examples, y=classes)
        return image_corpus(ImagesSettings(source=str(tmp_path / "a.npz"), test=0.2))

    examples, classes = np.random.default_rng(0).uniform(size=(60, 4, 6)).astype(np.float32), np.arange(60) % 2
    first = read_images(examples, classes)
    examples[first.train] /= 2
    assert read_images(examples, classes).held_out_digest == first.held_out_digest
    longer = read_images(np.concatenate([examples, examples[:1]]), np.append(classes, 0))
    assert longer.held_out_digest != first.held_out_digest
    examples[first.validation[0]] /= 2
    assert read_images(examples, classes).held_out_digest != first.held_out_digest


def test_a_size_is_height_and_width() -> None:
    for value, size in ((32, (32, 32)), ("32", (32, 32)), ("24x32", (24, 32)), ([24, 32], (24, 32)), (None, None)):
        assert ImagesSettings(source="digits", size=value).size == size
    for wrong in ("a", "1x2x3", 0, "-3", [1, 2, 3], 1.5):
        says = "must be N or HxW, such as 32 or 24x32, got" if wrong in ("a", "-3") else "size"
        with pytest.raises(ValidationError, match=says):
            ImagesSettings(source="digits", size=wrong)


def test_settings_of_pictures_and_of_texts() -> None:
    with pytest.raises(ValidationError, match=r"validation \+ test must leave examples to train on, got 0\.5 \+ 0\.5"):
        ImagesSettings(source="digits", validation=0.5, test=0.5)
    settings = ImagesSettings(source="digits", seed=3, turn=5, size=8)
    assert settings.picture_settings == ["size", "turn"]
    assert (settings.augmentation.turn, settings.augmentation.seed) == (5, 3)
    with pytest.raises(ValidationError, match="standard input"):
        LabelledSettings(train="-", test="-")
    assert LabelledSettings(train="-").size is None
    assert LabelledSettings(train="a.tsv", vocabulary=300).size == 300
