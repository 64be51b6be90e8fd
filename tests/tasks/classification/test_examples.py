from pathlib import Path

import numpy as np
import pytest
import torch

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
    open_examples,
    save_examples,
)
from attent.tasks.classification.pictures import Augmentation, Pictures
from attent.tasks.classification.settings import ImagesSettings
from attent.text.batches import BatchSize, Sequences

VARIED = Augmentation(shift=1, turn=10, seed=3)


def examples(
    pictures: Pictures, augmentation: Augmentation | None = None, chosen: np.ndarray | None = None
) -> LabelledExamples:
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


def test_an_epoch_taken_up_in_the_middle_goes_on_the_same(pictures: Pictures) -> None:
    whole = examples(pictures, VARIED).stream(BatchSize(pairs=8), 0)
    for _ in range(7):
        next(whole)
    position, after = whole.position, next(whole)
    repeated = next(examples(pictures, VARIED).stream(BatchSize(pairs=8), 0, position))
    assert repeated.sequence.equal(after.sequence)
    assert repeated.classes.equal(after.classes)


def test_texts_and_vectors_are_filled_up() -> None:
    texts = LabelledExamples(TextRows(Sequences([[4, 5, 6], [7]])), np.array([0, 1]))
    batch = texts.batch(np.array([1, 0]))
    assert batch.sequence[:, :3].tolist() == [[7, 0, 0], [4, 5, 6]]
    assert batch.lengths.tolist() == [1, 3]
    vectors = VectorSequences(np.ones((2, 40, 3), np.float32), np.array([5, 40]), np.array([0, 1]), ("a", "b"))
    rows = VectorRows(vectors, VectorInputs(mean=(1, 1, 1), deviation=(1, 1, 1)))
    assert LabelledExamples(rows, vectors.classes).batch(np.array([0])).sequence.shape == (1, 16, 3)
    assert rows.read(np.array([0, 1]), None).shape == (2, 40, 3)


SETTINGS = ImagesSettings(source="x", patch=2, shift=1, seed=3)


@pytest.mark.parametrize("kind", ["pictures", "vectors", "texts"])
def test_another_process_opens_the_same(kind: str, pictures: Pictures, tmp_path: Path) -> None:
    classes, chosen = np.arange(40) % 2, np.arange(0, 40, 3)
    if kind == "pictures":
        inputs = PictureInputs.of(pictures, chosen, SETTINGS)
        rows = PictureRows(pictures, inputs, SETTINGS.augmentation)
    elif kind == "vectors":
        numbers = np.random.rand(40, 5, 3).astype(np.float32)
        vectors = VectorSequences(numbers, np.arange(40) % 5 + 1, classes, ("a", "b"))
        inputs = VectorInputs.of(vectors, chosen)
        rows = VectorRows(vectors, inputs)
    else:
        inputs = TextInputs()
        rows = TextRows(Sequences([[4] * (row % 7 + 1) for row in range(40)]))
    saved = LabelledExamples(rows, classes, chosen)
    reopened = open_examples(save_examples(saved, tmp_path), Inputs(labels=("a", "b"), inputs=inputs), SETTINGS)
    first, second = (examples.augmented(np.array([5, 0, 7]), 0, 2) for examples in (saved, reopened))
    for name in ("sequence", "lengths", "classes"):
        assert getattr(first, name).equal(getattr(second, name))
    assert all((a == b).all() for a, b in zip(saved.fingerprint(), reopened.fingerprint(), strict=True))
