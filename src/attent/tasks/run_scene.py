"""Scenes of runs: the attention of a translator, language model or classifier on one text or picture."""

from __future__ import annotations

from typing import Any

from attent.layers.patches import patch_grid
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import PictureInputs, TextInputs
from attent.tasks.classification.pictures import Pictures
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.translator import Translator
from attent.views.build_scene import build_scene
from attent.views.scene import Picture, Scene
from attent.views.scene_labels import CLS


def scene_of_text(run: Translator | FillMask | TextGenerator, text: str, *, gradients: bool = False) -> Scene:
    """Build the scene of a translator, of a filler that reads a text with blanks, or of a language model.

    Args:
        run: the run.
        text: its text.
        gradients: whether to show the weights times the gradients of the output by them too.

    Raises:
        ArgumentError, DataError: as the run's `map`.
    """
    return build_scene(run.map(text, gradients=gradients), title=text)


def scene_of_example(
    classifier: Classifier, examples: Any, row: int = 0, *, title: str = "", gradients: bool = False
) -> Scene:
    """Build the scene of a classifier that reads one example; a picture comes with its patches.

    Args:
        classifier: the run.
        examples: as its `classify` takes them.
        row: which of them, from 0.
        title: of the scene.
        gradients: see `scene_of_text`.

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
