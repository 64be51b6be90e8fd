from pathlib import Path

import numpy as np
import pytest
import torch

from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, DataError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs, VectorInputs
from attent.text.tokenizer import CharTokenizer

LABELS = ("ape", "cat", "dog")
PICTURES = PictureInputs(height=4, width=6, colours="grey", patch=2, mean=(0.5,), deviation=(0.3,))
VECTORS = VectorInputs(mean=(0, 0, 0), deviation=(1, 1, 1))


def make_classifier(inputs: PictureInputs | VectorInputs | TextInputs) -> Classifier:
    tokenizer = CharTokenizer.learn(["abcdefgh"]) if isinstance(inputs, TextInputs) else None
    size = tokenizer.size if tokenizer else inputs.size
    kind = "tokens" if tokenizer else "vectors"
    model = EncoderModel(EncoderSettings(input=kind, cls=True, layers=2, width=8, feed_forward=7, heads=2), size, 3)
    return Classifier(model, Inputs(labels=LABELS, inputs=inputs), tokenizer)


def test_probabilities_sum_to_one_and_the_likeliest_comes_first() -> None:
    (predictions,) = make_classifier(TextInputs()).classify(["abc"], best=7)
    assert sorted(predictions.labels) == [*LABELS]
    assert sum(predictions.probabilities) == pytest.approx(1)
    assert list(predictions.probabilities) == sorted(predictions.probabilities, reverse=True)
    assert predictions.label == predictions.labels[0]


def test_a_string_gives_one_result_and_a_sequence_a_list() -> None:
    classifier = make_classifier(TextInputs())
    assert classifier.classify("abc", best=2) == classifier.classify(["abc"], best=2)[0]
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


def test_what_the_model_does_not_read_is_refused(tmp_path: Path) -> None:
    of_texts, of_pictures = make_classifier(TextInputs()), make_classifier(PICTURES)
    of_vectors = make_classifier(VECTORS)
    with pytest.raises(ArgumentError, match=r"reads texts: give a list of them, got ndarray \(2, 4, 6\)"):
        of_texts.classify(np.zeros((2, 4, 6)))
    with pytest.raises(ArgumentError, match=r"reads pictures \(H, W, C\) = \(4, 6, 1\), got \(6, 4, 1\)"):
        of_pictures.classify(np.zeros((1, 6, 4)))
    for files in (tmp_path / "a.png", [tmp_path / "a.png"]):
        with pytest.raises(DataError, match=r"a\.png cannot be read"):
            of_pictures.classify(files)
    with pytest.raises(ArgumentError, match="reads vectors of 3 numbers, and these have 4"):
        of_vectors.classify(np.zeros((1, 5, 4)))
    with pytest.raises(ArgumentError, match=r"each sequence of vectors must be \(T, D\), got \(3,\)"):
        of_vectors.classify(np.zeros((5, 3)))
    with pytest.raises(ArgumentError, match=r"same width, got \[3, 4\]"):
        of_vectors.classify([np.zeros((5, 3)), np.zeros((5, 4))])
    with pytest.raises(ArgumentError, match="best must be at least 1"):
        of_texts.classify(["abc"], best=0)


def test_maps_are_of_the_vector_in_front_and_the_places() -> None:
    classifier = make_classifier(PICTURES)
    maps = classifier.maps(np.random.rand(3, 4, 6).astype(np.float32), row=1)
    assert [*maps] == ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"]
    assert {weights.shape for weights in maps.values()} == {torch.Size((1, 2, 7, 7))}
    assert rollout([*maps.values()], [0]).sum().item() == pytest.approx(1, abs=1e-5)
    for row in (3, -1):
        with pytest.raises(ArgumentError, match=f"^row must be from 0 to 2, got {row}$"):
            classifier.maps(np.random.rand(3, 4, 6).astype(np.float32), row=row)


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
def test_inputs_that_are_not_the_models_are_refused(
    inputs, labels: tuple[str, ...], tokenizer: CharTokenizer | None, says: str
) -> None:
    model = EncoderModel(EncoderSettings(input="vectors", cls=True, layers=1, width=8, feed_forward=7, heads=2), 3, 3)
    with pytest.raises(ArgumentError, match=says):
        Classifier(model, Inputs(labels=labels, inputs=inputs), tokenizer)
