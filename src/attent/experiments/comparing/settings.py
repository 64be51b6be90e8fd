"""What is compared: models by name, and the settings with which each is trained on dates or on captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attent.data.dates import DatesSettings, dates
from attent.data.text import TranslationCorpus
from attent.errors import UnknownNameError
from attent.tasks.settings import RunSettings

MODELS = ("none", "bahdanau", "luong", "transformer")
# As figures and tables call them.
TITLES = {"none": "RNN, fixed vector", "bahdanau": "RNN, Bahdanau", "luong": "RNN, Luong", "transformer": "Transformer"}

RECURRENT = {"kind": "rnn", "embedding_width": 64, "width": 128}
TRANSFORMER = {
    "kind": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "width": 128,
    "feed_forward": 256,
    "heads": 4,
    "position": "rotary",
    "norm": "pre",
    "dropout": 0.0,
}
# The same on captions, where there is more to know and less to learn it from.
DROPPED = {"embedding_dropout": 0.2, "context_dropout": 0.2, "output_dropout": 0.2}
RECURRENT_ON_CAPTIONS = {"kind": "rnn", "embedding_width": 256, "width": 256, "encoder_width": 256, **DROPPED}
TRANSFORMER_ON_CAPTIONS = {"kind": "transformer", "preset": "tiny", "norm": "pre", "position": "rotary"}

DATES: dict[str, Any] = {"held_out_pairs": 1000}
PAIRS = 48
PIECES, TOKENS, LONGEST = 4000, 2048, 512


@dataclass(frozen=True)
class Options:
    """What a person asks of a comparison.

    Args:
        out: its folder.
        data: Multi30k's folder; captions are left out unless given.
        minutes: the most that each training takes; each experiment's own unless given.
        updates: how many each has; each experiment's own unless given.
        seeds: how many times each model is trained, with the seeds 1, 2 and so on.
        models: which; all of the experiment's unless given.
        scores: which; all unless given.
    """

    out: Path
    data: Path | None = None
    minutes: float | None = None
    updates: int | None = None
    seeds: int | None = None
    models: Sequence[str] | None = None
    scores: Sequence[str] | None = None


def chosen(kind: str, asked: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Those asked for, in the order of those known; all unless any are.

    Raises:
        UnknownNameError: one is not known.
    """
    for name in asked or ():
        if name not in known:
            raise UnknownNameError(kind, name, known)
    return [name for name in known if not asked or name in asked]


def model(name: str, *, captions: bool = False) -> dict[str, Any]:
    """The settings of a model by its name in `MODELS`."""
    recurrent, transformer = (RECURRENT_ON_CAPTIONS, TRANSFORMER_ON_CAPTIONS) if captions else (RECURRENT, TRANSFORMER)
    return dict(transformer) if name == "transformer" else {**recurrent, "attention": name}


@cache
def corpus(settings: DatesSettings) -> TranslationCorpus:
    """The dates of a training, made once."""
    return dates(settings)


def on_dates(model: Mapping[str, Any], *, updates: int, minutes: float | None, seed: int) -> RunSettings:
    """A training on dates: the same batches whichever the model."""
    rate = 3e-3 if model["kind"] == "rnn" else 2e-3
    # the steps are too small to be faster in 16 bits
    return _settings({"dates": DATES}, model, updates, minutes, seed, batch_pairs=PAIRS, learning_rate=rate, precision="float32")


def on_captions(
    files: Mapping[str, str], model: Mapping[str, Any], *, updates: int | None, minutes: float | None, seed: int
) -> RunSettings:
    """A training on joined captions, for a time."""
    text = {**files, "vocabulary": PIECES, "maximum_length": LONGEST}
    rate = 2e-3 if model["kind"] == "rnn" else 3e-3
    more = {"label_smoothing": 0.1, "warmup": 200}
    return _settings({"text": text}, model, updates, minutes, seed, batch_tokens=TOKENS, learning_rate=rate, **more)


def _settings(
    corpus: Mapping[str, Any], model: Mapping[str, Any], updates: int | None, minutes: float | None, seed: int, **training: Any
) -> RunSettings:
    usual = {"schedule": "cosine", "warmup": 100, "clip": 1.0, "label_smoothing": 0.0, "save_every": 200, "seed": seed}
    # what they take is told by threads, and they translate there too
    usual["device"] = "cpu"
    limits = {"updates": updates, "minutes": minutes}
    return RunSettings.model_validate({**corpus, "model": dict(model), "training": {**usual, **limits, **training}})
