"""Labelled examples that one process of a machine has read and the others open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attent.data.batches import Sequences
from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.examples import LabelledExamples, PictureRows, Rows, TextRows, VectorRows
from attent.data.labelled.inputs import Inputs, PictureInputs, VectorInputs
from attent.data.labelled.pictures import Pictures
from attent.data.labelled.settings import ImagesSettings

CLASSES, CHOSEN = "classes", "chosen"


def lend(examples: LabelledExamples, folder: Path) -> Path:
    """Put examples into a folder, from where `lent` opens them.

    Args:
        examples: those to train on.
        folder: one that is there.

    Returns:
        The folder.
    """
    parts = {CLASSES: examples.all_classes, CHOSEN: examples.chosen, **examples.rows.arrays()}
    for name, numbers in parts.items():
        np.save(folder / f"{name}.npy", numbers)
    return folder


def lent(folder: Path, inputs: Inputs, settings: ImagesSettings | None) -> LabelledExamples:
    """The examples that another process has put into a folder; in memory they are once for both.

    Args:
        folder: where they are.
        inputs: as the run has them.
        settings: how pictures vary.
    """
    found = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
    return LabelledExamples(_rows(found, inputs, settings), found[CLASSES], found[CHOSEN])


def _rows(found: Mapping[str, np.ndarray], inputs: Inputs, settings: ImagesSettings | None) -> Rows:
    match inputs.inputs:
        case PictureInputs() as how:
            return PictureRows(Pictures(found["pixels"], None, inputs.labels), how, None if settings is None else settings.augmentation)
        case VectorInputs() as how:
            return VectorRows(VectorSequences(found["vectors"], found["lengths"], None, inputs.labels), how)
        case _:
            return TextRows(Sequences([part.tolist() for part in np.split(found["tokens"], np.cumsum(found["lengths"])[:-1])]))
