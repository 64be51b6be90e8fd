from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, AttentError, DataError, ShapeError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.classification.classifier import Classifier, scene_of_example
from attent.tasks.classification.evaluation import confusion
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs, VectorInputs
from attent.tasks.classification.unlabelled import read_examples
from attent.text.tokenizer import CharTokenizer

LABELS = ("ape", "cat", "dog")
PICTURES = PictureInputs(height=4, width=6, colours="grey", patch=2, mean=(0.5,), deviation=(0.3,))
VECTORS = VectorInputs(mean=(0, 0, 0), deviation=(1, 1, 1))


def make_classifier(inputs: PictureInputs | VectorInputs | TextInputs) -> Classifier:
    tokenizer = CharTokenizer.learn(["abcdefgh"]) if isinstance(inputs, TextInputs) else None
    kind, size = ("tokens", tokenizer.size) if tokenizer else ("vectors", inputs.size)
    model = EncoderModel(EncoderSettings(input=kind, cls=True, layers=2, width=8, feed_forward=7, heads=2), size, 3)
    return Classifier(model, Inputs(labels=LABELS, inputs=inputs), tokenizer)


def test_a_string_gives_one_result_and_a_sequence_a_list() -> None:
    classifier = make_classifier(TextInputs())
    predictions = classifier.classify("abc", best=7)
    assert classifier.classify(["abc"], best=7) == [predictions]
    assert sorted(predictions.labels) == [*LABELS]
    assert sum(predictions.probabilities) == pytest.approx(1)
    assert list(predictions.probabilities) == sorted(predictions.probabilities, reverse=True)
    assert predictions.label == predictions.labels[0]
    assert classifier.classify(("abc", "b")) == classifier.classify(["abc", "b"])
    single, listed = classifier.maps("abc"), classifier.maps(["abc"])
    assert all(torch.equal(single[name].dense(), listed[name].dense()) for name in listed)


def test_an_example_does_not_depend_on_its_neighbours() -> None:
    classifier = make_classifier(TextInputs())
    texts = ["abc", "a" * 40, "hgfedcba", "b"]
    joint = classifier.classify(texts, best=3)
    for text, target in zip(texts, joint, strict=True):
        (single,) = classifier.classify([text], best=3)
        assert single.labels == target.labels
        assert single.probabilities == pytest.approx(target.probabilities, abs=1e-6)
    assert classifier.classify([]) == []


def test_pictures_come_as_files_or_as_arrays(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    classifier, pixels = make_classifier(PICTURES), np.random.default_rng(0).integers(0, 256, (2, 4, 6), np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file, pixel in zip(files, pixels, strict=True):
        image.fromarray(pixel).save(file)
    predictions = classifier.classify(pixels, best=3)
    assert predictions == classifier.classify(files, best=3) == classifier.classify([*map(str, files)], best=3)
    assert predictions == classifier.classify(pixels[..., None], best=3)
    shares = classifier.classify(pixels / np.float32(255), best=3)
    assert [share.labels for share in shares] == [prediction.labels for prediction in predictions]


def test_vectors_come_as_an_array_or_one_by_one() -> None:
    classifier = make_classifier(VECTORS)
    vectors = np.random.default_rng(0).normal(size=(2, 5, 3))
    assert classifier.classify(vectors) == classifier.classify([*vectors])
    assert len(classifier.classify([vectors[0], vectors[1, :2]])) == 2


def test_examples_that_the_model_does_not_read_are_refused(tmp_path: Path) -> None:
    of_texts, of_pictures, of_vectors = (make_classifier(inputs) for inputs in (TextInputs(), PICTURES, VECTORS))
    for classifier, examples, says in (
        (of_texts, np.zeros((2, 4, 6)), r"reads texts: give a list of them, got ndarray \(2, 4, 6\)"),
        (of_pictures, np.zeros((1, 6, 4)), r"reads pictures \(H, W, C\) = \(4, 6, 1\), got \(6, 4, 1\)"),
        (of_pictures, tmp_path / "a.png", r"a\.png cannot be read"),
        (of_pictures, [tmp_path / "a.png"], r"a\.png cannot be read"),
        (of_vectors, np.zeros((1, 5, 4)), "reads vectors of 3 numbers, and these have 4"),
        (of_vectors, np.zeros((5, 3)), r"each sequence of vectors must be \(T, D\), got \(3,\)"),
        (of_vectors, [np.zeros((5, 3)), np.zeros((5, 4))], r"same width, got \[3, 4\]"),
    ):
        with pytest.raises((ArgumentError, DataError), match=says):
            classifier.classify(examples)
    with pytest.raises(ArgumentError, match="best must be at least 1"):
        of_texts.classify(["abc"], best=0)


def test_maps_and_scenes_are_of_the_vector_in_front_and_the_places() -> None:
    classifier, pixels = make_classifier(PICTURES), np.random.default_rng(0).integers(0, 256, (3, 4, 6, 1), np.uint8)
    maps = classifier.maps(pixels, row=1)
    assert [*maps] == ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"]
    assert {weights.shape for weights in maps.values()} == {torch.Size((1, 2, 7, 7))}
    assert rollout([*maps.values()], [0]).sum().item() == pytest.approx(1, abs=1e-5)
    for row in (3, -1):
        with pytest.raises(ArgumentError, match=f"^row must be from 0 to 2, got {row}$"):
            classifier.maps(pixels, row=row)
    scene = scene_of_example(classifier, pixels, 1, title="one")
    assert scene.picture.grid == (2, 3)
    assert (scene.picture.pixels == pixels[1]).all()
    assert scene.groups[0].shape == (2, 7, 7)
    assert scene.texts["tokens"].labels[:2] == ("CLS", "patch 1,1")
    reads_text = make_classifier(TextInputs())
    for text, gradients, measures in (("ba", True, ["norms", "gradients"]), ("", False, ["norms"])):
        scene = scene_of_example(reads_text, [text], gradients=gradients)
        assert scene.texts["tokens"].labels == ("CLS", *text)
        assert len(scene.groups[0].layers) == 2
        assert [measure.measure for measure in scene.groups[0].measures] == measures
    scene = scene_of_example(make_classifier(VECTORS), np.zeros((1, 3, 3), np.float32))
    assert scene.texts["tokens"].labels == ("CLS", "0", "1", "2")


def test_arrays_are_what_a_file_may_have() -> None:
    of_pictures, of_vectors = make_classifier(PICTURES), make_classifier(VECTORS)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 6))
    assert of_pictures.classify(pixels, best=3) == of_pictures.classify(pixels.astype(np.uint8), best=3)
    assert of_pictures.classify(torch.from_numpy(pixels)) == of_pictures.classify(pixels)
    for wrong in (pixels * 16.0 / 255, pixels + 256, np.full((1, 4, 6), np.nan), -pixels / 255):
        with pytest.raises(DataError, match="pictures must be whole numbers from 0 to 255 or floats from 0 to 1"):
            of_pictures.classify(wrong)
    vectors = np.zeros((2, 5, 3))
    vectors[1, 4, 0] = np.nan
    with pytest.raises(DataError, match="vector 4 of example 1 has a value that is not finite"):
        of_vectors.classify(vectors)
    assert of_pictures.classify(np.zeros((0, 4, 6))) == []


@pytest.mark.parametrize(
    ("inputs", "labels", "tokenizer", "says"),
    [
        (VECTORS, ("ape", "cat"), None, r"inputs\.json names 2 labels,"),
        (VECTORS, (), None, r"inputs\.json names 0 labels, and the model"),
        (VectorInputs(mean=(0.0,) * 2, deviation=(1.0,) * 2), LABELS, None, "vectors of 2 numbers, and it reads"),
        (VECTORS, LABELS, CharTokenizer("a"), "reads vectors, and its"),
        (TextInputs(), LABELS, CharTokenizer("a"), "reads texts, and its settings and tokenizers say otherwise"),
    ],
)
def test_inputs_that_are_not_the_models_are_refused(inputs: Any, labels: Any, tokenizer: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Classifier(make_classifier(VECTORS).model, Inputs(labels=labels, inputs=inputs), tokenizer)


@pytest.mark.parametrize(
    ("inputs", "source", "invert", "says"),
    [
        (PICTURES, "b.png", False, r"b\.png cannot be read: not a picture that Pillow can read, or damaged"),
        (PICTURES, "empty", False, "empty has no picture"),
        (PICTURES, "v.npz", False, r"this run reads pictures, and v\.npz holds sequences of vectors"),
        (VECTORS, "p.npz", False, r"this run reads sequences of vectors, and p\.npz holds pictures"),
        (VECTORS, "wide.npz", False, "the run reads vectors of 3 numbers, and these have 4"),
        (VECTORS, "", False, r"this run reads sequences of vectors, from an .npz, got ''"),
        (VECTORS, "v.npz", True, "--invert is for pictures, and this run reads vectors"),
    ],
)
def test_files_of_another_kind_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: Any, source: str, invert: bool, says: str
) -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.chdir(tmp_path)
    Path("b.png").write_text("no picture")
    Path("empty").mkdir()
    np.savez("v.npz", x=np.ones((2, 5, 3)))
    np.savez("wide.npz", x=np.ones((2, 5, 4)))
    np.savez("p.npz", images=np.ones((2, 4, 6)))
    with pytest.raises(AttentError, match=says):
        read_examples(make_classifier(inputs), source, print, invert=invert)


def test_a_confusion_matrix_worked_by_hand() -> None:
    matrix = confusion([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 1], LABELS)
    assert matrix.counts.tolist() == [[2, 1, 0], [0, 2, 0], [0, 1, 0]]
    assert matrix.accuracy == pytest.approx(100 * 4 / 6)
    # 2·2/(2 + 3), 2·2/(4 + 2), 0
    assert matrix.f1.tolist() == pytest.approx([80, 100 * 2 / 3, 0])
    assert matrix.macro_f1 == pytest.approx((80 + 200 / 3) / 3)
    # a class that is nowhere does not count
    assert confusion([0, 1], [0, 1], LABELS).macro_f1 == 100
    assert confusion([], [], LABELS).macro_f1 == 0
    matrix = confusion([0, 0, 0, 1, 2, 2], [1, 1, 2, 1, 1, 2], LABELS)
    assert matrix.top_confusions(2) == [("ape", "cat", 2), ("ape", "dog", 1)]
    assert len(matrix.top_confusions(10)) == 3
    assert confusion([0] * 12 + [1], [0] * 12 + [2], LABELS).table() == [
        "     ape  cat  dog",
        "ape   12    ·    ·",
        "cat    ·    ·    1",
        "dog    ·    ·    ·",
    ]
    with pytest.raises(ShapeError, match="each of 2 classes"):
        confusion([0, 1], [0], LABELS)
