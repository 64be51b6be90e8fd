"""eole's own trainer on the pairs of attent's batches.

It builds its own batches from them, with the same number of tokens.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from _measured import Clock, Enough, arguments, model_in, quietly, say


def settings(options: Namespace, out: Path) -> dict[str, Any]:
    """Return eole's configuration of a Transformer of the same size as attent's, with one embedding."""
    like = model_in(options.folder)
    lines = sum(1 for _ in (options.folder / "source.txt").open(encoding="utf-8"))
    pieces = sum(1 for _ in (options.folder / "vocabulary.txt").open(encoding="utf-8"))
    training = {
        "world_size": 1,
        "gpu_ranks": [],
        "batch_type": "tokens",
        "batch_size": options.tokens,
        "batch_size_multiple": 8,
        "normalization": "tokens",
        "bucket_size": lines,
        "num_workers": 0,
        "accum_count": [1],
        "optim": "adamw",
        "adam_beta2": 0.98,
        "learning_rate": 1e-3,
        "max_grad_norm": 1.0,
        "label_smoothing": 0.1,
        "dropout": [like["dropout"]],
        "attention_dropout": [0.0],
        "dropout_steps": [0],
        "param_init_method": "xavier_uniform",
        "compute_dtype": "fp32",
        "train_steps": 10**6,
        "valid_steps": 10**6,
        "save_checkpoint_steps": 0,
        "model_path": str(out / "model"),
    }
    model = {
        "architecture": "transformer",
        "encoder": {"layers": like["encoder_layers"]},
        "decoder": {"layers": like["decoder_layers"]},
        "hidden_size": like["width"],
        "heads": like["heads"],
        "transformer_ff": like["feed_forward"],
        "mlp_activation_fn": "relu",
        "embeddings": {"word_vec_size": like["width"], "position_encoding_type": "SinusoidalInterleaved"},
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }
    return {
        "seed": 1,
        "share_vocab": True,
        "src_vocab": str(options.folder / "vocabulary.txt"),
        "src_vocab_size": pieces,
        "tgt_vocab_size": pieces,
        "vocab_size_multiple": 1,
        "report_every": 10**6,
        "data": {
            "pairs": {"path_src": str(options.folder / "source.txt"), "path_tgt": str(options.folder / "target.txt")}
        },
        "training": training,
        "model": model,
    }


def train(options: Namespace, clock: Clock) -> None:
    """Train until the clock stops it."""
    from eole import trainer
    from eole.bin.run import train as command
    from eole.config.run import TrainConfig

    own = trainer.Trainer._train_step

    def timed(self: Any, batches: Any, *rest: Any, **named: Any) -> Any:
        # targets begin with a token that the model does not predict
        clock.begin(sum(int(batch["srclen"].sum() + (batch["tgtlen"] - 1).sum()) for batch in batches))
        return own(self, batches, *rest, **named)

    trainer.Trainer._train_step = timed
    with tempfile.TemporaryDirectory() as out:
        command.train(TrainConfig(**settings(options, Path(out))))


def main() -> None:
    """Train and print the speed."""
    options = arguments(__doc__)
    clock = Clock(options.warmup, options.updates)
    try:
        with quietly():
            train(options, clock)
    except Enough:
        say("eole", tokens_per_second=clock.rate, tokens=clock.tokens, updates=options.updates, threads=options.threads)


if __name__ == "__main__":
    main()
