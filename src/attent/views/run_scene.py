"""Scenes of runs: what a translator, a filler or a classifier looked at in one text or picture."""

from __future__ import annotations

from typing import Any

from attent.data.labelled.inputs import PictureInputs, TextInputs
from attent.data.labelled.pictures import Pictures
from attent.decoding.classifier import Classifier
from attent.decoding.fill_mask import FillMask
from attent.decoding.translator import Translator
from attent.layers.patches import patch_grid
from attent.views.build_scene import build_scene
from attent.views.labelling import FRONT
from attent.views.scene import Picture, Scene


def scene_of_text(run: Translator | FillMask, text: str) -> Scene:
    """What a translator looked at while it translated a text, or a filler while it read one with blanks.

    Raises:
        ArgumentError, DataError: as the run's `map`.
    """
    return build_scene(run.map(text), title=text)


def scene_of_example(classifier: Classifier, examples: Any, row: int = 0, *, title: str = "") -> Scene:
    """What a classifier looked at in one example; a picture comes with its patches.

    Args:
        classifier: the run.
        examples: those that its `classify` takes.
        row: which of them, from 0.
        title: above it.

    Raises:
        ArgumentError, DataError: as the run's `maps`.
    """
    data = classifier.data(examples)
    maps = classifier.maps(data, row)
    match classifier.inputs.inputs:
        case PictureInputs() as how:
            assert isinstance(data, Pictures)
            shown = Picture(data.pixels[row], patch_grid(how.height, how.width, how.patch), "tokens")
            return build_scene(maps, title=title, picture=shown)
        case TextInputs():
            assert classifier.tokenizer is not None and isinstance(data, tuple)
            return build_scene(maps, (FRONT, *classifier.tokenizer.pieces(data[row])), title=title)
        case _:
            places = next(iter(maps.values())).shape[-1] - 1
            return build_scene(maps, (FRONT, *map(str, range(places))), title=title)
