from pathlib import Path

import numpy as np
import pytest

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


def test_digits_are_divided_by_class() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    corpus = image_corpus(ImagesSettings(source="digits", test=0.2, validation=0.1))
    parts = [corpus.train, corpus.validation, corpus.test]
    assert [len(rows) for rows in parts] == [1294, 144, 359]
    assert np.unique(np.concatenate(parts)).tolist() == [*range(1797)]
    assert np.bincount(corpus.classes[corpus.test]).min() >= 34
    assert isinstance(corpus.inputs.inputs, PictureInputs)
    assert corpus.inputs.inputs.patch == 2
    assert count_examples("digits") == (1797, True)


def test_vectors_are_read(tmp_path: Path) -> None:
    source = npz(tmp_path, x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    corpus = image_corpus(ImagesSettings(source=source))
    assert isinstance(corpus.data, VectorSequences)
    assert isinstance(corpus.inputs.inputs, VectorInputs)
    assert count_examples(source) == (20, False)
    assert encode_rows(corpus.data, corpus.inputs, None).read(corpus.train[:2], None).shape == (2, 5, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "nowhere"}, "there are no pictures at nowhere: it is neither 'digits', nor a folder, nor an .npz"),
        ({"source": "digits", "size": 16}, "images.size does not apply to the digits"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises((ArgumentError, DataError), match=message):
        image_corpus(ImagesSettings(**settings))


def test_arrays_are_refused_what_pictures_have(tmp_path: Path) -> None:
    vectors = npz(tmp_path, x=np.random.rand(20, 5, 3), y=np.arange(20) % 2)
    with pytest.raises(ArgumentError, match=r"images\.patch does not apply to sequences of vectors"):
        image_corpus(ImagesSettings(source=vectors, patch=2))
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
    def inputs(picture_inputs: PictureInputs | VectorInputs | TextInputs, *labels: str) -> Inputs:
        return Inputs(labels=labels or ("a", "b"), inputs=picture_inputs)

    wide = VectorInputs(mean=(0, 0), deviation=(1, 1))
    narrow = VectorInputs(mean=(0,), deviation=(1,))
    small = PictureInputs(height=4, width=4, colours="grey", patch=2, mean=(0,), deviation=(1,))
    check_inputs(inputs(wide), inputs(wide))
    with pytest.raises(ArgumentError, match=r"the run has 2 classes \(a, b\), and these examples have 4"):
        check_inputs(inputs(wide), inputs(wide, *"abcd"))
    with pytest.raises(ArgumentError, match="the run reads vectors, and these are texts"):
        check_inputs(inputs(wide), inputs(TextInputs()))
    with pytest.raises(ArgumentError, match="the run reads vectors of 2 numbers, and these have 1"):
        check_inputs(inputs(wide), inputs(narrow))
    with pytest.raises(ArgumentError, match="reads pictures of 4 x 4 pixels in grey, and these have 8 x 4 pixels"):
        check_inputs(inputs(small), inputs(small.model_copy(update={"height": 8})))


@pytest.mark.parametrize("name", ["images", "x"])
def test_held_out_examples_have_a_digest_that_the_others_do_not_change(name: str, tmp_path: Path) -> None:
    def read_images(examples: np.ndarray, classes: np.ndarray) -> LabelledCorpus:
        np.savez(tmp_path / "a.npz", **{name: examples, "y": classes})
        return image_corpus(ImagesSettings(source=str(tmp_path / "a.npz"), test=0.2))

    examples, classes = np.random.default_rng(0).uniform(size=(60, 4, 6)).astype(np.float32), np.arange(60) % 2
    first = read_images(examples, classes)
    examples[first.train] /= 2
    assert read_images(examples, classes).held_out_digest == first.held_out_digest
    longer = read_images(np.concatenate([examples, examples[:1]]), np.append(classes, 0))
    assert longer.held_out_digest != first.held_out_digest
    examples[first.validation[0]] /= 2
    assert read_images(examples, classes).held_out_digest != first.held_out_digest
