from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attent.errors import AttentError
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, PictureInputs, VectorInputs
from attent.tasks.classification.unlabelled import read_examples

INPUTS = {
    "pictures": PictureInputs(height=4, width=6, colours="grey", patch=2, mean=(0.5,), deviation=(0.3,)),
    "vectors": VectorInputs(mean=(0, 0, 0), deviation=(1, 1, 1)),
}


@pytest.mark.parametrize(
    ("kind", "source", "invert", "says"),
    [
        ("pictures", "b.png", False, r"b\.png cannot be read: not a picture that Pillow can read, or damaged"),
        ("pictures", "nowhere.png", False, r"nowhere\.png cannot be read: No such file or directory"),
        ("pictures", "empty", False, "empty has no picture"),
        ("pictures", "v.npz", False, r"this run reads pictures, and v\.npz holds sequences of vectors"),
        ("vectors", "p.npz", False, r"this run reads sequences of vectors, and p\.npz holds pictures"),
        ("vectors", "wide.npz", False, "the run reads vectors of 3 numbers, and these have 4"),
        ("vectors", "a.png", False, r"this run reads sequences of vectors, from an .npz, got a\.png"),
        ("vectors", "", False, r"this run reads sequences of vectors, from an .npz, got ''"),
        ("vectors", "v.npz", True, "--invert is for pictures, and this run reads vectors"),
    ],
)
def test_examples_of_another_kind_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str, invert: bool, says: str
) -> None:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    monkeypatch.chdir(tmp_path)
    Path("b.png").write_text("no picture")
    Path("empty").mkdir()
    np.savez("v.npz", x=np.ones((2, 5, 3)))
    np.savez("wide.npz", x=np.ones((2, 5, 4)))
    np.savez("p.npz", images=np.ones((2, 4, 6)))
    inputs = INPUTS[kind]
    settings = EncoderSettings(input="vectors", cls=True, layers=1, width=8, feed_forward=7, heads=2)
    classifier = Classifier(EncoderModel(settings, inputs.size, 2), Inputs(labels=("a", "b"), inputs=inputs), None)
    with pytest.raises(AttentError, match=says):
        read_examples(classifier, source, print, invert=invert)
