"""Caption canvases of digits with a Transformer and an RNN, and measure which region each digit's word attends to.

For each seed, `examples/make_canvases.py` draws the canvases, and `configs/canvases.toml` and
`configs/canvases-rnn.toml` train on them. Two parts are held out: test has images of digits that training never saw;
combinations also has pairs of digits that never stand on one canvas in training. No loss is on attention. The share of
the attention of a digit's word on its own quarter of the canvas is the sum over that quarter's patches, of the last
layer, averaged over its heads, while the model writes the right caption of each picture. As a control, the quarters of
all words are shuffled. `scripts/bench captions` takes about 4 minutes of one core for each row.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _sides import head, table
from make_canvases import NAMES, POSITIONS, Canvas, canvases, write_canvases

from attent.tasks.caption.captioner import Captioner, load
from attent.tasks.overrides import override
from attent.tasks.recipe import follow
from attent.tasks.settings import read
from attent.training.progress import Progress
from attent.views.panel import choose

CONFIGS = Path(__file__).parents[1] / "configs"
MODELS = {"Transformer": "canvases.toml", "RNN": "canvases-rnn.toml"}
PICTURES, HELD_OUT = 8_000, 500


def attention(captioner: Captioner, drawn: Sequence[Canvas]) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the attention of each digit's word to the four quarters of its canvas, and the digit's own quarter."""
    side = captioner.inputs.height // captioner.inputs.patch
    patches = np.arange(side**2)
    quarters = patches // side // (side // 2) * 2 + patches % side // (side // 2)
    for pixels, caption in drawn:
        _, weights = choose(captioner.map(pixels[None], caption))
        rows = weights.weights.dense()[0].mean(0).numpy()
        positions = [POSITIONS.index(named.split(maxsplit=1)[1]) for named in caption.split(" , ")]
        words = [row for row, label in enumerate(weights.rows) if label.strip() in NAMES]
        for position, row in zip(positions, words, strict=True):
            yield np.bincount(quarters, weights=rows[row], minlength=len(POSITIONS)), position


def evaluate(captioner: Captioner, drawn: Sequence[Canvas]) -> dict[str, Any]:
    """Return the whole captions, and the attention on a word's own quarter and on a shuffled one, in per cent."""
    captions = captioner.caption(np.stack([pixels for pixels, _ in drawn]))
    shares, positions = zip(*attention(captioner, drawn), strict=True)
    shuffled = np.random.default_rng(0).permutation(positions)
    rows = np.arange(len(positions))
    return {
        "captions": 100 * np.mean([text == caption for text, (_, caption) in zip(captions, drawn, strict=True)]),
        "attention": 100 * np.array(shares)[rows, positions].mean(),
        "shuffled": 100 * np.array(shares)[rows, shuffled].mean(),
    }


def measure(model: str, seed: int, changes: Sequence[str]) -> dict[str, float]:
    """Train a model on the canvases of a seed, and evaluate it on both held-out parts."""
    drawn = canvases(PICTURES, HELD_OUT, seed)
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "canvases", Path(folder) / "run"
        write_canvases(data, drawn)
        settings = override(read(CONFIGS / MODELS[model]), [f"captions.source={data}", *changes], seed=seed)
        started = time.process_time()
        follow(settings, run, progress=Progress())
        seconds = time.process_time() - started
        captioner = load(run)
        results = {part: evaluate(captioner, drawn[part]) for part in ("test", "combinations")}
    numbers = {f"{part} {name}": float(value) for part, scores in results.items() for name, value in scores.items()}
    return numbers | {"CPU seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train each model on each seed and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of the canvases and the weights")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="models to train")
    parser.add_argument("--set", action="append", default=[], dest="changes", help="change a setting, TABLE.KEY=VALUE")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    rows = [
        {"model": model, "seed": seed, **measure(model, seed, options.changes)}
        for model in options.models
        for seed in options.seeds
    ]
    head("canvases of digits: whole captions and the attention of a digit's word on its own quarter, in per cent")
    names = [name for name in rows[0] if name not in ("model", "seed")]
    table(
        ["model", "seed", *names],
        [[str(row["model"]), str(row["seed"]), *(f"{row[name]:.1f}" for name in names)] for row in rows],
    )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
