"""Record what the live figures read: the weights of the course's translator, and attention of its RNNs and of digits.

    PYTHONPATH=scripts python -m figures.record RUNS

RUNS is the folder of the runs that docs/learn trains (phrases, phrases-rnn, phrases-none) and of
`attent train --config configs/digits.toml --set images.patch=2 --out RUNS/digits`. Written are translator.npz, whose
weights have 16 bits, and recorded.json, both beside this file; scripts/site_figures.py gives them to pages.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attent
from attent.formats.html import payload
from attent.runs.config import read_config
from attent.runs.folder import read
from attent.tasks.classification.classifier import load
from attent.tasks.classification.corpus import image_corpus
from attent.tasks.classification.pictures import Pictures
from attent.tasks.classification.settings import ImagesSettings

FOLDER = Path(__file__).parent
TRANSLATOR, RECORDED = FOLDER / "translator.npz", FOLDER / "recorded.json"
# English sentences with their translation by the grammar; the RNN with attention translates each without a mistake.
SENTENCES = {
    "the black dog sings": "le chien noir chante",
    "the black dog sings on the chair": "le chien noir chante sur la chaise",
    "the small green bird sees a mouse": "le petit oiseau vert voit une souris",
    "the white horse follows three black cows": "le cheval blanc suit trois vaches noires",
}
DIGITS = range(10)


def translator(run: Path) -> dict[str, np.ndarray]:
    """Return the description of a translator in JSON, and the bytes of its weights, as a page of the run has them."""
    description, packs = payload(read(run), run.name)
    return {"description": np.array(json.dumps(description, ensure_ascii=False)), "weights": packs["weights"]}


def sentences(runs: Path) -> list[dict[str, Any]]:
    """Return the translations of both RNNs word by word, and the weights of each step of the one with attention."""
    attending, fixed = (attent.load(runs / name) for name in ("phrases-rnn", "phrases-none"))
    recorded = []
    for source, right in SENTENCES.items():
        (labelled,) = attending.map(source).values()
        words = [label.strip() for label in labelled.rows[:-1]]
        if " ".join(words) != right:
            raise ValueError(f"the RNN translates {source!r} by {words}: choose another sentence")
        recorded.append(
            {
                "source": source,
                "right": right.split(),
                "attention": words,
                "fixed": fixed.translate([source])[0].split(),
                "weights": rounded(labelled.weights[0, 0][:-1]),
            }
        )
    return recorded


def digits(run: Path) -> list[dict[str, Any]]:
    """Return the first test picture of each digit, its predicted class and the weights of the class token by layer.

    Weights are the mean of a layer's heads: the class token's own comes first, then those of the patches.
    """
    classifier = load(run)
    corpus = image_corpus(ImagesSettings.model_validate(read_config(run).corpus["images"]))
    assert isinstance(corpus.data, Pictures)
    pixels, classes = corpus.data.pixels[corpus.test], corpus.classes[corpus.test]
    recorded = []
    for digit in DIGITS:
        picture = pixels[int(np.flatnonzero(classes == digit)[0])][None]
        layers = [weights[0, :, 0].mean(0) for weights in classifier.maps(picture).values()]
        recorded.append(
            {
                "label": classifier.classify(picture)[0].label,
                "pixels": np.rint(16 * picture[0, ..., 0].astype(float) / picture.max()).astype(int).tolist(),
                "layers": rounded(torch.stack(layers)),
            }
        )
    return recorded


def rounded(weights: torch.Tensor) -> list[Any]:
    """Return weights with four decimals."""
    return (weights.double() * 1e4).round().div(1e4).tolist()


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("runs", type=Path)
    runs = parser.parse_args().runs
    np.savez_compressed(TRANSLATOR, **translator(runs / "phrases"))  # pyright: ignore[reportArgumentType]
    recorded = {"sentences": sentences(runs), "digits": digits(runs / "digits")}
    RECORDED.write_text(json.dumps(recorded, ensure_ascii=False) + "\n", encoding="utf-8")
    for file in (TRANSLATOR, RECORDED):
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
