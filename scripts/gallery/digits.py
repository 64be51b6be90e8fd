"""The attention of a Vision Transformer's class token over handwritten digits, and its average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.layers.patches import patch_grid, patches
from attent.runs.config import read_config
from attent.tasks.classification.classifier import Classifier, load, scene_of_example
from attent.tasks.classification.corpus import image_corpus
from attent.tasks.classification.inputs import PictureInputs
from attent.tasks.classification.pictures import Pictures
from attent.tasks.classification.settings import ImagesSettings
from attent.views.palette import color_map
from attent.views.picture import FULL, MULTIPLES, cls_weights
from gallery.drawing import sheet
from gallery.plates import Plate, Words

# Number of test pictures over which weights are averaged.
AVERAGED = 100
# The class whose picture gets a page of its own.
OPENED = 3
KINDS = {"mean": "all heads of the last layer", "rolled out": "rolled out through all layers"}


def plate(run: Path) -> Plate:
    """Draw a test picture of each class, and the weights of the class token.

    Of the last layer, and rolled out through all layers.
    """
    classifier = load(run)
    inputs = classifier.inputs.inputs
    corpus = image_corpus(ImagesSettings.model_validate(read_config(run).corpus["images"]))
    assert isinstance(inputs, PictureInputs) and isinstance(corpus.data, Pictures)
    pixels, classes = corpus.data.pixels[corpus.test], corpus.classes[corpus.test]
    grid = patch_grid(inputs.height, inputs.width, inputs.patch)
    rows = [int(np.flatnonzero(classes == number)[0]) for number in range(len(classifier.labels))]
    predictions = classifier.classify(pixels)
    right = float(
        np.mean(
            [
                prediction.label == classifier.labels[number]
                for prediction, number in zip(predictions, classes, strict=True)
            ]
        )
    )
    weights = {row: patch_weights(classifier, pixels[row]) for row in {*rows, *range(min(AVERAGED, len(pixels)))}}
    average = {
        name: torch.stack([weights[row][name] for row in range(min(AVERAGED, len(pixels)))]).mean(0) for name in KINDS
    }
    columns = [*(weights[row] for row in rows), average]
    # the patches and the class token
    keys = 1 + math.prod(grid)
    drawing = sheet(9.0, 2.9)
    panels = drawing.subplots(len(KINDS) + 1, len(columns))
    for column in range(len(columns)):
        own = column < len(rows)
        image = pixels[rows[column]] if own else pixels[:AVERAGED].mean(0)
        _picture(panels[0][column], image[..., 0], cmap="gray")
        label = predictions[rows[column]] if own else None
        panels[0][column].set_title(f"{label.label}: {label.probabilities[0]:.0%}" if label else "mean", fontsize=8)
    for line, name in zip(panels[1:], KINDS, strict=True):
        images = [
            _picture(axes, keys * maps[name].reshape(grid).numpy(), cmap=color_map(), vmin=1, vmax=FULL)
            for axes, maps in zip(line, columns, strict=True)
        ]
        scale = drawing.colorbar(images[0], ax=list(line), fraction=0.012, pad=0.01)
        scale.ax.tick_params(labelsize=7, length=2)
        scale.set_label(MULTIPLES, fontsize=7)
    for axes, name in zip(panels[:, 0], ("picture", "last layer", "rolled out"), strict=True):
        axes.set_ylabel(name, fontsize=8)
    common, dark = _common(columns[:-1]), [_dark(pixels[row], weights[row]["mean"], grid) for row in rows]
    return Plate(
        "digits",
        Words(
            "Where a Vision Transformer looks at digits",
            f"A row of ten digits and their mean; beneath each two grids of {grid[0]} x {grid[1]} patches, dark where "
            "the class token attends.",
            f"`attent train --config configs/digits.toml --set images.patch={inputs.patch}` for its number of updates; "
            f"the first test image of each class, with its predicted class, and the mean of {AVERAGED} test "
            f"images. The accuracy is {right:.1%} on the {len(pixels)} test images.",
            f"The weights of the class token on the patches: {KINDS['mean']} averaged, and {KINDS['rolled out']}, "
            f"as multiples of uniform. Any two of the ten maps share {common[0]:.2f} of their weight on average in the "
            f"last layer, and {common[1]:.2f} rolled out, where 1 means identical maps; the last column shows the "
            f"average map, whatever the digit. In the last layer, {np.mean(dark):.2f} of the weight on patches is on "
            "those darker than the image's mean.",
            "That the dark patches are the reason for the prediction: the class token also has its own vector and the "
            "residual stream, patches have attended to each other before, and no patch was removed to see whether "
            "the prediction changes.",
        ),
        drawing,
        scene_of_example(classifier, pixels, rows[OPENED], title=f"a written {classifier.labels[OPENED]}"),
    )


def patch_weights(classifier: Classifier, picture: np.ndarray) -> dict[str, Tensor]:
    """Return the weights of each patch, (T,): the mean of the last layer's heads, and rolled out."""
    maps = cls_weights([*classifier.maps(picture[None]).values()])
    mean = next(name for name in maps if name.startswith("mean"))
    return {"mean": maps[mean], "rolled out": maps["rolled out"]}


def _common(maps: Sequence[dict[str, Tensor]]) -> list[float]:
    """Return the mean overlap of two maps, for each kind: the sum over patches of the smaller share."""
    means: list[float] = []
    for name in KINDS:
        shares = torch.stack([weights[name] / weights[name].sum() for weights in maps])
        common = torch.minimum(shares[:, None], shares[None]).sum(-1)
        means.append(float(common[~torch.eye(len(maps), dtype=torch.bool)].mean()))
    return means


def _dark(picture: np.ndarray, weights: Tensor, grid: tuple[int, int]) -> float:
    """Return the share of the weight on patches that are darker than the picture's mean."""
    ink = patches(torch.from_numpy(picture[None]).float(), len(picture) // grid[0])[0].mean(-1)  # (T,)
    return float(weights[ink < ink.mean()].sum() / weights.sum())


def _picture(axes: Any, image: np.ndarray, **colors: Any) -> Any:
    axes.set_xticks([])
    axes.set_yticks([])
    return axes.imshow(image, interpolation="nearest", **colors)
