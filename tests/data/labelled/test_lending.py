from pathlib import Path

import numpy as np
import pytest

from attent.data.batches import Sequences
from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.examples import LabelledExamples, PictureRows, TextRows, VectorRows
from attent.data.labelled.inputs import Inputs, PictureInputs, TextInputs, VectorInputs
from attent.data.labelled.lending import lend, lent
from attent.data.labelled.pictures import Pictures
from attent.data.labelled.settings import ImagesSettings

SETTINGS = ImagesSettings(source="x", patch=2, shift=1, seed=3)


@pytest.mark.parametrize("kind", ["pictures", "vectors", "texts"])
def test_another_process_opens_the_same(kind: str, pictures: Pictures, tmp_path: Path) -> None:
    classes, chosen = np.arange(40) % 2, np.arange(0, 40, 3)
    if kind == "pictures":
        how = PictureInputs.of(pictures, chosen, SETTINGS)
        rows = PictureRows(pictures, how, SETTINGS.augmentation)
    elif kind == "vectors":
        vectors = VectorSequences(np.random.rand(40, 5, 3).astype(np.float32), np.arange(40) % 5 + 1, classes, ("a", "b"))
        how = VectorInputs.of(vectors, chosen)
        rows = VectorRows(vectors, how)
    else:
        how = TextInputs()
        rows = TextRows(Sequences([[4] * (row % 7 + 1) for row in range(40)]))
    here = LabelledExamples(rows, classes, chosen)
    there = lent(lend(here, tmp_path), Inputs(labels=("a", "b"), inputs=how), SETTINGS)
    some = np.array([5, 0, 7])
    one, other = (examples.augmented(some, 0, 2) for examples in (here, there))
    assert one.sequence.equal(other.sequence)
    assert one.lengths.equal(other.lengths)
    assert one.classes.equal(other.classes)
    assert all((a == b).all() for a, b in zip(here.fingerprint(), there.fingerprint(), strict=True))
