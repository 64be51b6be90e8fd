"""Train a decoder that can look ahead: its training loss is low, and its translations are worthless.

    python examples/without_causal_mask.py

Two Transformers are trained on dates (`en | March 3, 2026` → `2026-03-03`) in the same way, one of them without the
causal mask of the decoder. Both are evaluated on unseen dates: by the loss, given the correct target, and by their own
output.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from attent.runs.folder import read_config
from attent.tasks.recipe import follow
from attent.tasks.settings import parse

SETTINGS = """
[dates]
locales = ["en", "fr"]
training_pairs = 20000
held_out_combinations = 2
held_out_pairs = 500

[model]
encoder_layers = 1
decoder_layers = 1
width = 64
feed_forward = 128
heads = 4
position = "rotary"
norm = "pre"
dropout = 0.0

[training]
updates = 600
batch_pairs = 48
learning_rate = 3e-3
schedule = "cosine"
warmup = 60
label_smoothing = 0.0
precision = "float32"
seed = 1
"""


def judged() -> dict[str, float]:
    """Train, and return the results of the last validation: loss in nats per token, and exact match in percent."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        follow(parse(SETTINGS, "settings"), run)
        return read_config(run).training["outcome"]["validation"]


def main() -> None:
    """Train both models, and print their results."""
    results = {"with the causal mask": judged()}
    # the decoder looks up its mask by this name
    with mock.patch("attent.models.transformer_layers.Causal", lambda: None):
        results["without it"] = judged()
    print(f"{'':22}loss, given the target    dates written right")
    for name, scores in results.items():
        print(f"{name:22}{scores['loss']:.4f} nats a token       {scores['exact match']:5.1f} %")


if __name__ == "__main__":
    main()
