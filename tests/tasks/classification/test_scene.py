import numpy as np
import torch

from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings
from attent.tasks.classification.classifier import Classifier, scene_of_example
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs, VectorInputs
from attent.text.tokenizer import CharTokenizer


def classifier(inputs: object, tokenizer: CharTokenizer | None = None) -> Classifier:
    torch.manual_seed(0)
    kind, size = ("tokens", tokenizer.size) if tokenizer else ("vectors", inputs.size)
    settings = EncoderSettings(input=kind, cls=True, layers=2, width=12, feed_forward=16, heads=3)
    return Classifier(EncoderModel(settings, size, 2), Inputs(labels=("no", "yes"), inputs=inputs), tokenizer)


def test_a_picture_comes_with_its_patches() -> None:
    inputs = PictureInputs(height=4, width=6, colours="grey", patch=2, mean=(0.5,), deviation=(0.2,))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 1), np.uint8)
    scene = scene_of_example(classifier(inputs), pixels, 1, title="one")
    assert scene.picture.grid == (2, 3)
    assert (scene.picture.pixels == pixels[1]).all()
    assert scene.groups[0].shape == (3, 7, 7)
    assert scene.texts["tokens"].labels[:2] == ("CLS", "patch 1,1")


def test_a_text_has_its_pieces_behind_the_vector_in_front() -> None:
    reads_text = classifier(TextInputs(), CharTokenizer("ab"))
    scene = scene_of_example(reads_text, ["ba"])
    assert scene.texts["tokens"].labels == ("CLS", "b", "a")
    assert len(scene.groups[0].layers) == 2
    assert scene_of_example(reads_text, [""]).groups[0].shape == (3, 1, 1)


def test_vectors_have_numbers() -> None:
    inputs = VectorInputs(mean=(0.0,) * 5, deviation=(1.0,) * 5)
    scene = scene_of_example(classifier(inputs), torch.randn(1, 3, 5).numpy())
    assert scene.texts["tokens"].labels == ("CLS", "0", "1", "2")


def test_gradients_come_along_on_request() -> None:
    reads_text = classifier(TextInputs(), CharTokenizer("ab"))
    for gradients, measures in ((True, ["norms", "gradients"]), (False, ["norms"])):
        scene = scene_of_example(reads_text, ["abba"], gradients=gradients)
        assert [measure.measure for measure in scene.groups[0].measures] == measures
