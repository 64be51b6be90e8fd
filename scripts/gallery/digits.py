"""Where a Vision Transformer's vector in front looks in written digits, beside where it looks on average."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.data.labelled.corpus import image_corpus
from attent.data.labelled.inputs import PictureInputs
from attent.data.labelled.pictures import Pictures
from attent.data.labelled.settings import ImagesSettings
from attent.decoding.classifier import Classifier, load
from attent.layers.patches import patch_grid, patches
from attent.runs.config import read_config
from attent.views.patch_overlay import cls_weights
from attent.views.run_scene import scene_of_example
from gallery.drawing import sheet
from gallery.plates import Plate, Words

# Test pictures over which weights are averaged.
AVERAGED = 100
# The class whose picture is a page to be opened.
OPENED = 3
KINDS = {"mean": "all heads of the last layer", "rolled out": "rolled out through all layers"}


def plate(run: Path) -> Plate:
    """A test picture of each class, and over it the weights of the vector in front: of its last layer, and through all."""
    classifier = load(run)
    how = classifier.inputs.inputs
    corpus = image_corpus(ImagesSettings.model_validate(read_config(run).corpus["images"]))
    assert isinstance(how, PictureInputs) and isinstance(corpus.data, Pictures)
    pixels, classes = corpus.data.pixels[corpus.test], corpus.classes[corpus.test]
    grid = patch_grid(how.height, how.width, how.patch)
    rows = [int(np.flatnonzero(classes == number)[0]) for number in range(len(classifier.labels))]
    told = classifier.classify(pixels)
    right = float(np.mean([one.label == classifier.labels[number] for one, number in zip(told, classes, strict=True)]))
    looks = {row: looked(classifier, pixels[row]) for row in {*rows, *range(min(AVERAGED, len(pixels)))}}
    average = {name: torch.stack([looks[row][name] for row in range(min(AVERAGED, len(pixels)))]).mean(0) for name in KINDS}
    every = [*(looks[row] for row in rows), average]
    drawing = sheet(9.0, 2.9)
    places = drawing.subplots(len(KINDS) + 1, len(every))
    for column in range(len(every)):
        own = column < len(rows)
        shown = pixels[rows[column]] if own else pixels[:AVERAGED].mean(0)
        _picture(places[0][column], shown[..., 0], cmap="gray")
        label = told[rows[column]] if own else None
        places[0][column].set_title(f"{label.label}: {label.probabilities[0]:.0%}" if label else "mean", fontsize=8)
    for line, name in zip(places[1:], KINDS, strict=True):
        top = max(float(one[name].max()) for one in every)
        images = [
            _picture(axes, one[name].reshape(grid).numpy(), cmap="Blues", vmin=0, vmax=top) for axes, one in zip(line, every, strict=True)
        ]
        scale = drawing.colorbar(images[0], ax=list(line), fraction=0.012, pad=0.01)
        scale.ax.tick_params(labelsize=7, length=2)
    for axes, name in zip(places[:, 0], ("picture", "last layer", "rolled out"), strict=True):
        axes.set_ylabel(name, fontsize=8)
    common, dark = _common(every[:-1]), [_dark(pixels[row], looks[row]["mean"], grid) for row in rows]
    return Plate(
        "digits",
        Words(
            "Where a Vision Transformer looks in digits",
            f"A row of ten digits and their mean; beneath each two grids of {grid[0]} x {grid[1]} patches, dark where the vector in "
            "front looks.",
            f"`attent train --config configs/digits.toml --set images.patch={how.patch}` by its number of updates; the first test "
            f"picture of each class, with what it is told to be, and the mean of {AVERAGED} test pictures. It tells {right:.1%} of the "
            f"{len(pixels)} test pictures right.",
            f"How the vector in front weighs the patches: {KINDS['mean']} averaged, and {KINDS['rolled out']}, each row with its own "
            f"scale. Two of the ten maps have {common[0]:.2f} of their weight in common places on average in the last layer, and "
            f"{common[1]:.2f} rolled out, where 1 is the same map; the last column is what a map looks like whatever the digit. In the "
            f"last layer {np.mean(dark):.2f} of the weight on patches lies on those darker than the picture's mean.",
            "That the dark patches are why it said so: the vector in front has itself and the residual stream to go by, patches have "
            "looked at each other before, and no patch was taken away to see whether the answer changes.",
        ),
        drawing,
        scene_of_example(classifier, pixels, rows[OPENED], title=f"a written {classifier.labels[OPENED]}"),
    )


def looked(classifier: Classifier, picture: np.ndarray) -> dict[str, Tensor]:
    """The weights of each patch, (T,): the mean of the last layer's heads, and rolled out."""
    found = cls_weights([*classifier.maps(picture[None]).values()])
    mean = next(name for name in found if name.startswith("mean"))
    return {"mean": found[mean], "rolled out": found["rolled out"]}


def _common(maps: Sequence[dict[str, Tensor]]) -> list[float]:
    """How much of their weight two maps have in common on average, for each kind: the sum of the smaller of both shares."""
    found: list[float] = []
    for name in KINDS:
        shares = torch.stack([one[name] / one[name].sum() for one in maps])
        common = torch.minimum(shares[:, None], shares[None]).sum(-1)
        found.append(float(common[~torch.eye(len(maps), dtype=torch.bool)].mean()))
    return found


def _dark(picture: np.ndarray, weights: Tensor, grid: tuple[int, int]) -> float:
    """The share of the weight on patches that are darker than the picture's mean."""
    ink = patches(torch.from_numpy(picture[None]).float(), len(picture) // grid[0])[0].mean(-1)  # (T,)
    return float(weights[ink < ink.mean()].sum() / weights.sum())


def _picture(axes: Any, image: np.ndarray, **colours: Any) -> Any:
    axes.set_xticks([])
    axes.set_yticks([])
    return axes.imshow(image, interpolation="nearest", **colours)
