"""Scenes of a classifier: its attention while it reads one text, picture or sequence of vectors."""

from __future__ import annotations

from typing import Any

from attent.layers.patches import patch_grid
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import PictureInputs, TextInputs
from attent.tasks.classification.pictures import Pictures
from attent.views.build_scene import build_scene
from attent.views.scene import Picture, Scene
from attent.views.scene_labels import CLS


def scene_of_example(
    classifier: Classifier, examples: Any, row: int = 0, *, title: str = "", gradients: bool = False
) -> Scene:
    """Build the scene of a classifier that reads one example; a picture comes with its patches.

    Args:
        classifier: the run.
        examples: as its `classify` takes them.
        row: which of them, from 0.
        title: of the scene.
        gradients: whether to show the weights times the gradients of the output by them too.

    Raises:
        ArgumentError, DataError: as the run's `maps`.
    """
    data = classifier.data(examples)
    maps, derived = classifier.maps_and_gradients(data, row, gradients=gradients)
    match classifier.inputs.inputs:
        case PictureInputs() as inputs:
            assert isinstance(data, Pictures)
            picture = Picture(data.pixels[row], patch_grid(inputs.height, inputs.width, inputs.patch), "tokens")
            return build_scene(maps, title=title, picture=picture, gradients=derived)
        case TextInputs():
            assert classifier.tokenizer is not None and isinstance(data, tuple)
            return build_scene(maps, (CLS, *classifier.tokenizer.pieces(data[row])), title=title, gradients=derived)
        case _:
            return build_scene(
                maps, (CLS, *map(str, range(next(iter(maps.values())).shape[-1] - 1))), title=title, gradients=derived
            )
