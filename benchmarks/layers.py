"""Compare a wide layer with two and three narrow ones of equally many parameters: Transformers on captions and dates.

    benchmarks/layers.py [--data DIR] [--out runs/layers] [--corpora dates captions] [--models …] [--seeds 1 2 3]

DIR is the folder of `attent data multi30k`; without it, captions are left out. Models have the same parameters without
embeddings within 2 %, or, with "all", the same parameters in total; a decoder has as many layers as its encoder, and
the feed-forward width is about four times the width. Trainings on a corpus
read the same batches; one on dates takes about 40 seconds of the processor. Each is done once, and is resumed after an
interruption, so models and seeds can be trained in separate commands; the last command prints the tables of all that it
names, and writes them to OUT with figures.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _report import Column, Report, ResultTable, machine_info
from _sides import show
from comparison import trainings
from comparison.length import MULTI30K, read_captions
from comparison.results import (
    BLEU_OF_WORDS,
    EXACT_MATCH,
    RESAMPLES,
    Figure,
    Measure,
    ModelComparison,
    Point,
    Series,
    estimate,
)
from comparison.trainings import TrainingPlan

from attent.devices import limit_threads
from attent.runs.durable import LOG
from attent.tasks.dates import DatesSettings
from attent.tasks.dates.corpus import HELD_OUT_DATES
from attent.tasks.settings import RunSettings
from attent.tasks.translation.translator import load
from attent.text.text import Pair

# Layers, width, and width inside the feed-forward networks, for as many parameters as one layer of 96 without
# embeddings, or, with "all", in total.
SIZES = {
    "1 layer of 96": (1, 96, 384),
    "2 layers of 68": (2, 68, 272),
    "3 layers of 56": (3, 56, 212),
    "2 layers of 68, all": (2, 68, 280),
    "3 layers of 56, all": (3, 56, 228),
    "2 layers of 72, all": (2, 72, 312),
    "3 layers of 60, all": (3, 60, 276),
}
# Captions have more embeddings than dates.
MODELS = {"dates": [*SIZES][:5], "captions": [*SIZES][:3] + [*SIZES][5:]}
DATES = {"training_pairs": 60_000, "held_out_pairs": 1000}
PIECES = 2000
TRAININGS = {
    "dates": {"updates": 600, "batch_pairs": 48, "learning_rate": 2e-3, "label_smoothing": 0.0},
    "captions": {"updates": 300, "batch_tokens": 2048, "learning_rate": 3e-3, "label_smoothing": 0.1},
}
MEASURES: dict[str, Measure] = {"dates": EXACT_MATCH, "captions": BLEU_OF_WORDS}


def settings_of(corpus: str, name: str, seed: int, data: Path | None) -> RunSettings:
    """Return the settings of a training."""
    layers, width, inner = SIZES[name]
    model: dict[str, Any] = {
        "kind": "transformer",
        "encoder_layers": layers,
        "decoder_layers": layers,
        "width": width,
        "feed_forward": inner,
        "heads": 4,
        "norm": "pre",
        "dropout": 0.0 if corpus == "dates" else 0.1,
        "share_embeddings": "target" if corpus == "dates" else "all",
    }
    tables: dict[str, Any] = {"dates": DATES}
    if data is not None and corpus == "captions":
        parts = {part: [str((data / file).resolve()) for file in MULTI30K[part]] for part in ("train", "valid")}
        files = {
            f"{part}_{side}": file
            for part, pair in parts.items()
            for side, file in zip(("source", "target"), pair, strict=True)
        }
        tables = {"text": {**files, "tokenizer": "bpe", "shared": True, "vocabulary": PIECES}}
    training = {
        "schedule": "cosine",
        "warmup": 100,
        "clip": 1.0,
        "precision": "float32",
        "threads": 1,
        "device": "cpu",
        "validate_every": TRAININGS[corpus]["updates"] // 4,
        "seed": seed,
    }
    return RunSettings.model_validate({**tables, "model": model, "training": training | TRAININGS[corpus]})


def plan(corpus: str, name: str, seed: int, data: Path | None) -> TrainingPlan:
    """Return the training of a model."""
    folder = name.replace(",", "").replace(" ", "-")
    return TrainingPlan(f"{corpus}/{folder}-{seed}", settings_of(corpus, name, seed, data))


def test_pairs(corpus: str, data: Path | None) -> list[Pair]:
    """Return the test pairs of a corpus."""
    if corpus == "captions" and data is not None:
        return read_captions(*(data / file for file in MULTI30K["test"]))
    return list(trainings.dates_corpus(DatesSettings.model_validate(DATES)).held_out[HELD_OUT_DATES])


def losses(folder: Path) -> dict[int, float]:
    """Return the validation loss of a run by update, in nats per token."""
    records = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    return {record["update"]: record["validation"]["loss"] for record in records if "validation" in record}


def compare_on(
    corpus: str, models: Sequence[str], seeds: Sequence[int], out: Path, data: Path | None
) -> tuple[ResultTable, Figure]:
    """Return the scores of the models, and their losses while they are trained."""
    measure, test, rows, series = MEASURES[corpus], test_pairs(corpus, data), [], []
    for name in models:
        plans = [plan(corpus, name, seed, data) for seed in seeds]
        texts = [trainings.translate(each, out, "test", [pair.source for pair in test]).texts for each in plans]
        score = estimate(measure, [measure.statistics(by_seed, [pair.target for pair in test]) for by_seed in texts])
        curves = [losses(out / each.name) for each in plans]
        model = load(out / plans[0].name).model
        embedded = {id(each): each.numel() for part in model.embeddings.values() for each in part.parameters()}
        total = sum(each.numel() for each in model.parameters())
        last = [[*curve.values()][-1] for curve in curves]
        rows.append(
            {
                "model": name,
                "total": total,
                "layers": total - sum(embedded.values()),
                "loss": f"{statistics.fmean(last):.3f} ({', '.join(f'{loss:.3f}' for loss in last)})",
                "score": str(score),
                "values": score._asdict(),
            }
        )
        points = [(update, [curve[update] for curve in curves]) for update in curves[0]]
        series.append(Series(name, [Point(at, statistics.fmean(y), min(y), max(y), len(y)) for at, y in points]))
    columns = [
        Column("model", "encoder and decoder, each"),
        Column("layers", "parameters without embeddings", ",.0f"),
        Column("total", "parameters", ",.0f"),
        Column("loss", "validation loss, nats per token (seeds)"),
        Column("score", f"test {measure.name} [95 %] (seeds)"),
    ]
    title = f"{corpus.capitalize()}, {len(test):,} test pairs, {TRAININGS[corpus]['updates']:,} updates"
    label = f"{corpus.capitalize()}: validation loss, mean and range of {len(seeds)} seeds"
    figure = Figure(f"layers-{corpus}", label, "updates", "nats per token", series)
    return ResultTable(title, columns, rows), figure


def compare(
    corpora: Sequence[str], models: Sequence[str] | None, seeds: Sequence[int], out: Path, data: Path | None
) -> ModelComparison:
    """Train the models, and return their scores."""
    trainings.claim(out, "layers")
    chosen = {corpus: [name for name in MODELS[corpus] if not models or name in models] for corpus in corpora}
    plans = [plan(corpus, name, seed, data) for corpus in corpora for name in chosen[corpus] for seed in seeds]
    trainings.train(plans, out)
    results = [compare_on(corpus, names, seeds, out, data) for corpus, names in chosen.items()]
    note = f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test pairs."
    tables, figures = zip(*results, strict=True)
    return ModelComparison("layers", Report("Layers at equal parameters", machine_info(), tables, [note]), figures)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of Multi30k")
    parser.add_argument("--out", type=Path, default=Path("runs/layers"))
    parser.add_argument("--corpora", nargs="+", choices=MODELS)
    parser.add_argument("--models", nargs="+", choices=SIZES, metavar="MODEL")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    corpora = options.corpora or (["dates"] if options.data is None else [*MODELS])
    if "captions" in corpora and options.data is None:
        parser.error("captions need --data DIR")
    with limit_threads(1):
        comparison = compare(corpora, options.models, options.seeds, options.out, options.data)
    command = shlex.join(["scripts/bench", "layers", *sys.argv[1:]])
    comparison = replace(comparison, report=replace(comparison.report, command=command))
    comparison.write(options.out)
    show(comparison.report)


if __name__ == "__main__":
    main()
