"""JoeyNMT's own training loop, on attent's own batches.

The model is its Transformer, or its recurrent network with Bahdanau's attention.
"""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _measured import Clock, Enough, arguments, model_in, quietly, say

SOURCE, TARGET = "source", "target"


def side(name: str, folder: Path) -> dict[str, Any]:
    """Return JoeyNMT's configuration for one side of the data."""
    vocabulary = str(folder / "vocabulary.txt")
    return {"lang": name, "level": "word", "lowercase": False, "voc_file": vocabulary}


def transformer(like: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a Transformer of the same size as attent's, with one embedding."""
    layers = {
        "type": "transformer",
        "num_heads": like["heads"],
        "embeddings": {"embedding_dim": like["width"], "scale": True, "dropout": like["dropout"]},
        "hidden_size": like["width"],
        "ff_size": like["feed_forward"],
        "dropout": like["dropout"],
        "layer_norm": "pre",
    }
    sides = {side: layers | {"num_layers": like[f"{side}_layers"]} for side in ("encoder", "decoder")}
    return {"tied_embeddings": True, "tied_softmax": True} | sides


def rnn(like: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a recurrent network with Bahdanau's attention as large as attent's, as far as JoeyNMT allows.

    Its attention must be as wide as the decoder's state, and its output layer reads an attentional vector as in Luong's
    model.
    """
    layers = {
        "type": "recurrent",
        "rnn_type": like["cell"],
        "num_layers": 1,
        "hidden_size": like["width"],
        "dropout": 0.0,
        "embeddings": {"embedding_dim": like["embedding_width"], "dropout": like["embedding_dropout"]},
    }
    decoder = {
        "attention": "bahdanau",
        "hidden_dropout": like["output_dropout"],
        "init_hidden": "bridge",
        "input_feeding": True,
    }
    return {
        "tied_embeddings": False,
        "tied_softmax": True,
        "encoder": layers | {"bidirectional": True, "hidden_size": like["encoder_width"] or like["width"] // 2},
        "decoder": layers | decoder,
    }


def settings(options: Namespace, out: Path) -> dict[str, Any]:
    """Return JoeyNMT's configuration."""
    training = {
        "optimizer": "adamw",
        "adam_betas": [0.9, 0.98],
        "learning_rate": 1e-3,
        "scheduling": "noam",
        "clip_grad_norm": 1.0,
        "label_smoothing": 0.1,
        "loss": "crossentropy",
        "normalization": "tokens",
        "batch_type": "token",
        "batch_size": options.tokens,
        "batch_multiplier": 1,
        "epochs": 10**6,
        "logging_freq": 10**6,
        "validation_freq": 10**6,
        "shuffle": False,
    }
    data = {
        "train": str(options.folder / "train"),
        "dev": str(options.folder / "train"),
        "dataset_type": "plain",
        "src": side(SOURCE, options.folder),
        "trg": side(TARGET, options.folder),
    }
    like = model_in(options.folder)
    model = {"transformer": transformer, "rnn": rnn}[like["kind"]](like)
    return {
        "name": "measured",
        "model_dir": str(out),
        "use_cuda": False,
        "random_seed": 1,
        "data": data,
        "model": {"initializer": "xavier_uniform", "embed_initializer": "normal", "embed_init_weight": 0.1} | model,
        "training": training,
        "testing": {"beam_size": 1, "batch_size": 10, "batch_type": "sentence"},
    }


def train(options: Namespace, clock: Clock) -> None:
    """Train until the clock stops it."""
    from joeynmt import datasets, training

    rows = json.loads((options.folder / "batches.json").read_text())

    def batches(sampler: object) -> Iterator[list[int]]:
        first = 0
        for number in rows:
            yield list(range(first, first := first + number))

    datasets.TokenBatchSampler.__iter__ = batches
    own = training.TrainManager._train_step

    def timed(manager: Any, batch: Any) -> Any:
        # JoeyNMT appends a token to each source
        clock.begin(int(batch.src_length.sum()) - batch.nseqs + int(batch.ntokens))
        return own(manager, batch)

    training.TrainManager._train_step = timed
    with tempfile.TemporaryDirectory() as out:
        training.train(rank=0, world_size=1, cfg=settings(options, Path(out)), skip_test=True)


def main() -> None:
    """Train and print the speed."""
    options = arguments(__doc__)
    for name in (SOURCE, TARGET):
        link = options.folder / f"train.{name}"
        if not link.exists():
            link.symlink_to(options.folder / f"{name}.txt")
    clock = Clock(options.warmup, options.updates)
    try:
        with quietly():
            train(options, clock)
    except Enough:
        say(
            "joeynmt",
            tokens_per_second=clock.rate,
            tokens=clock.tokens,
            updates=options.updates,
            threads=options.threads,
        )


if __name__ == "__main__":
    main()
