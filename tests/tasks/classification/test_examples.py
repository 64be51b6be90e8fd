import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.inputs import (
    Inputs,
    LabelledExamples,
    PictureInputs,
    PictureRows,
    TextInputs,
    TextRows,
    VectorInputs,
    VectorRows,
    suitable_patch,
)
from attent.tasks.classification.pictures import Augmentation, Pictures
from attent.tasks.classification.settings import ImagesSettings
from attent.text.batches import Sequences

VARIED = Augmentation(shift=1, turn=10, seed=3)


def examples(pictures: Pictures, augmentation: Augmentation | None = None, chosen: Any = None) -> LabelledExamples:
    inputs = PictureInputs.of(pictures, np.arange(40), ImagesSettings(source="x", patch=2))
    return LabelledExamples(PictureRows(pictures, inputs, augmentation), pictures.classes, chosen)


def test_a_batch_is_of_chosen_rows(pictures: Pictures) -> None:
    sample = examples(pictures, chosen=np.array([3, 8, 5]))
    batch = sample.batch(np.array([2, 0]))
    assert (len(sample), sample.classes.tolist(), sample.token_count(np.array([2, 0]))) == (3, [1, 0, 1], 2)
    assert batch.classes.tolist() == [1, 1]
    assert batch.lengths.tolist() == [6, 6]
    assert batch.sequence.equal(examples(pictures).batch(np.array([5, 3])).sequence)
    assert (batch.tokens, batch.zero_weight().tokens, batch.to("cpu").tokens) == (2, 0, 2)


def test_pictures_vary_with_the_epoch_and_not_with_the_batch(pictures: Pictures) -> None:
    sample, rows = examples(pictures, VARIED), np.array([7, 2, 9])
    first = sample.augmented(rows, 0, 1).sequence
    torch.testing.assert_close(sample.augmented(rows[1:2], 0, 1).sequence, first[1:2])
    assert not sample.augmented(rows, 0, 2).sequence.allclose(first)
    torch.testing.assert_close(sample.augmented(rows, 0, 1).sequence, first)
    # what is judged stays as it is
    assert sample.batch(rows).sequence.equal(examples(pictures).batch(rows).sequence)


def test_texts_and_vectors_are_filled_up() -> None:
    texts = LabelledExamples(TextRows(Sequences([[4, 5, 6], [7]])), np.array([0, 1]))
    batch = texts.batch(np.array([1, 0]))
    assert batch.sequence[:, :3].tolist() == [[7, 0, 0], [4, 5, 6]]
    assert batch.lengths.tolist() == [1, 3]
    vectors = VectorSequences(np.ones((2, 40, 3), np.float32), np.array([5, 40]), np.array([0, 1]), ("a", "b"))
    rows = VectorRows(vectors, VectorInputs(mean=(1, 1, 1), deviation=(1, 1, 1)))
    assert LabelledExamples(rows, vectors.classes).batch(np.array([0])).sequence.shape == (1, 16, 3)
    assert rows.read(np.array([0, 1]), None).shape == (2, 40, 3)


def test_pixels_are_brought_to_mean_0_and_variance_1(pictures: Pictures) -> None:
    settings = ImagesSettings(source="x", patch=2)
    inputs = PictureInputs.of(pictures, np.arange(40), settings)
    read = inputs(torch.from_numpy(pictures.pixels))
    assert read.shape == (40, inputs.length, inputs.size) == (40, 6, 4)
    assert read.mean().item() == pytest.approx(0, abs=1e-5)
    assert read.std().item() == pytest.approx(1, abs=1e-3)
    # bytes and floats are the same
    whole = (255 * pictures.pixels.clip(0, 1)).astype(np.uint8)
    sides = (whole, whole.astype(np.float32) / 255)
    single, second = (PictureInputs.of(Pictures(side, None, ("a",)), np.arange(40), settings) for side in sides)
    assert single.mean == pytest.approx(second.mean)
    assert single.deviation == pytest.approx(second.deviation)
    # what is not trained on does not count
    half = PictureInputs.of(pictures, np.arange(40)[::2], settings)
    assert half != inputs
    pictures.pixels[1::2] = 0
    assert half == PictureInputs.of(pictures, np.arange(40)[::2], settings)


def test_real_vectors_alone_count() -> None:
    vectors = np.array([[[1.0, 7.0], [3.0, 7.0]], [[5.0, 7.0], [99.0, 99.0]]], np.float32)
    inputs = VectorInputs.of(VectorSequences(vectors, np.array([2, 1]), np.array([0, 1]), ("a", "b")), np.arange(2))
    assert inputs.mean == (3, 7)
    assert inputs.deviation == pytest.approx(((8 / 3) ** 0.5, 1))  # what never varies is left as wide as it is
    assert inputs.size == 2
    assert inputs(torch.tensor([[[3.0, 7.0]]])).tolist() == [[[0, 0]]]


def test_the_mean_needs_little_memory_beside_the_pictures() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), np.uint8)
    pixels[..., 2] = 77
    rows = np.arange(1, 3000)
    tracemalloc.start()
    inputs = PictureInputs.of(Pictures(pixels, np.zeros(3000, np.int64), ("a",)), rows, ImagesSettings(source="x"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * pixels.nbytes
    expected = pixels[rows].reshape(-1, 3) / 255
    assert inputs.mean == pytest.approx(tuple(expected.mean(0)))
    assert inputs.deviation == pytest.approx((*expected.std(0)[:2], 1))


def test_a_patch_is_found(pictures: Pictures) -> None:
    for size, patch in ((8, 2), (28, 4), (32, 4), (64, 8), (224, 28)):
        assert suitable_patch(size, size, 64) == patch
    assert suitable_patch(6, 9, 64) == 3
    assert suitable_patch(16, 16, 16) == 4
    with pytest.raises(ArgumentError, match=r"no patch size cuts 29 x 31 pixels into 4 to 64 patches: give another"):
        suitable_patch(29, 31, 64)
    with pytest.raises(ArgumentError, match=r"must divide .* 4 x 6 pixels, got 3"):
        PictureInputs.of(pictures, np.arange(40), ImagesSettings(source="x", patch=3))


def test_a_file_gives_back_the_same(pictures: Pictures) -> None:
    picture_inputs = PictureInputs.of(pictures, np.arange(40), ImagesSettings(source="x", patch=2))
    for inputs in (picture_inputs, TextInputs(), VectorInputs(mean=(0.5,), deviation=(2.0,))):
        written = Inputs(labels=("a", "b"), inputs=inputs)
        assert Inputs.read(written.model_dump_json()) == written
    with pytest.raises(DataError, match=r"inputs\.json is damaged: "):
        Inputs.read("{}")


PICTURES = {"kind": "pictures", "height": 4, "width": 4, "colours": "grey", "patch": 1, "mean": [0.5], "deviation": [1]}
NO_PICTURES = [{"patch": 0}, {"patch": 3}, {"height": 10**9}, {"mean": [0.5, 0.5]}, {"mean": [float("nan")]}]


@pytest.mark.parametrize("changes", [*NO_PICTURES, {"deviation": [0.0]}, {"colours": "rgb"}])
def test_numbers_that_no_picture_has_are_damage(changes: dict[str, object]) -> None:
    Inputs.read(json.dumps({"labels": ["a"], "inputs": PICTURES}))
    with pytest.raises(DataError, match=r"inputs\.json is damaged: inputs\.pictures"):
        Inputs.read(json.dumps({"labels": ["a"], "inputs": PICTURES | changes}))
