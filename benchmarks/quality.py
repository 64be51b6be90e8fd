"""Changes to a recipe as cells: trained on one core each for a fixed number of tokens, and judged on validation.

scripts/bench quality train DIR NAME… [--share short] [--seeds 1 2] [--cores 0 1] [--teacher RUN…]
scripts/bench quality table DIR
scripts/bench quality search RUN…
scripts/bench quality speed RUN RUN…

A cell is a change of configs/multi30k-tiny.toml with a seed. Its updates are given, not its minutes, so that a slow
machine changes nothing: `full` are the updates of an hour on one core (see benchmarks/results/quality.md), `short` a
third of them, which only tells what diverges. `train` trains the cells that are missing, one pinned to each core named,
and continues those that were interrupted; each is judged when it is done: loss and BLEU over all 1,014 validation pairs
(tokenized, beam 5, the length penalty that `search` found best for the recipe), kept in DIR/cells.jsonl. Cells of
another `--pair` of languages, or of another recipe, need a DIR of their own. `table` prints them: the mean over seeds,
and the difference from the recipe with the same seeds and updates, with a 95 % interval of a paired bootstrap over the
lines. `search` prints the BLEU of a run, or of an ensemble, for several length penalties. `speed` compares the ensemble
of runs with one of them: in turn, 300 validation lines by the ensemble and, as many times as it has models, by the
first run alone, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from _report import machine_info
from _sides import head, table

from attent.alignment.ablation import resampled_sums
from attent.search.settings import LengthForm, SearchSettings
from attent.tasks.translation.evaluation import BleuJudge, bleu_metric, loss
from attent.tasks.translation.translator import Translator, load, load_ensemble
from attent.text.readers import read_lines

RECIPE = Path(__file__).parents[1] / "configs" / "multi30k-tiny.toml"
UPDATES = {"full": 10_000, "short": 3_333}

# The changes, by name.
CHANGES: dict[str, tuple[str, ...]] = {
    "recipe": (),
    "adamw": ("training.optimizer=adamw", "training.weight_decay=0.0"),
    "decay 0.03": ("training.weight_decay=0.03",),
    "decay 0": ("training.weight_decay=0.0",),
    "decay 0.3": ("training.weight_decay=0.3",),
    "decay 1": ("training.weight_decay=1.0",),
    "dropout 0.1": ("model.dropout=0.1",),
    "dropout 0.3": ("model.dropout=0.3",),
    "teacher weight 1": ("training.teacher_weight=1.0",),
    "sequence level": ("training.teacher_level=sequence", "training.teacher_weight=1.0"),
}
SEARCH = SearchSettings(beam=5, length_form="length", length_penalty=1.0)
PENALTIES: dict[LengthForm, tuple[float, ...]] = {
    "wu": (0.0, 0.6, 1.0, 1.2, 1.4, 1.6),
    "length": (0.8, 1.0, 1.2),
}


@dataclass(frozen=True)
class Captions:
    """The captions of Multi30k in two languages.

    Args:
        folder: the folder of `attent data multi30k`.
        pair: the codes of the languages, from-to.
    """

    folder: Path
    pair: str = "en-de"

    def files(self, part: str) -> list[Path]:
        """Return the files of sources and targets of a part."""
        return [self.folder / f"tok/{part}.lc.norm.tok.{language}.gz" for language in self.pair.split("-")]

    def pairs(self, part: str) -> list[tuple[str, str]]:
        """Return the pairs of a part."""
        return list(zip(*map(read_lines, self.files(part)), strict=True))

    def settings(self) -> list[str]:
        """Return the changes of the recipe for these files."""
        parts = ("train", "train"), ("valid", "val")
        return [
            f"text.{name}_{side}={file}"
            for name, part in parts
            for side, file in zip(("source", "target"), self.files(part), strict=True)
        ]


def label_of(name: str, teachers: Sequence[Path]) -> str:
    """Return the name of a change in rows, with the number of teachers."""
    return f"{name}, {len(teachers)} teachers" if teachers else name


def train_cell(
    folder: Path, captions: Captions, name: str, share: str, seed: int, core: int, teachers: Sequence[Path]
) -> dict[str, Any]:
    """Train a cell, continuing it if it was interrupted, and return its row."""
    label = label_of(name, teachers)
    cell = folder / f"{label.replace(', ', '-').replace(' ', '-')}-{share}-{seed}"
    is_begun = cell.exists()
    words: list[Any] = ["--resume", cell]
    if not is_begun:
        # the recipe ends by the clock
        changes = [*captions.settings(), *CHANGES[name], "training.minutes=100000"]
        words = ["--config", RECIPE, "--out", cell, "--seed", seed, "--updates", UPDATES[share]]
        words += [f"--set={change}" for change in changes]
        words += [word for teacher in teachers for word in ("--teacher", teacher)]
    if not is_begun or json.loads((cell / "config.json").read_text("utf-8"))["state"] != "finished":
        command = ["taskset", "-c", core, sys.executable, "-m", "attent", "train", *words, "--threads", 1]
        with (folder / f"{cell.name}.log").open("a") as log:
            subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    return {"name": label, "share": share, "seed": seed, **judged(cell, captions)}


def judged(run: Path, captions: Captions) -> dict[str, Any]:
    """Return the scores of a run on the validation pairs, with the statistics of each line's BLEU."""
    translator = load(run)
    judge = BleuJudge(translator, captions.pairs("val"), "none", SEARCH)
    statistics = judge.statistics()
    outcome = json.loads((run / "config.json").read_text("utf-8"))["training"]["outcome"]
    return {
        "loss": loss(translator.score(judge.pairs)),
        "bleu": float(judge.metric.score(statistics.sum(0, keepdims=True))[0]),
        "minutes": outcome["seconds"] / 60,
        "precision": outcome["precision"],
        "machine": machine_info(),
        "statistics": statistics.tolist(),
    }


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the cells that are done."""
    file = folder / "cells.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def train(
    folder: Path,
    captions: Captions,
    names: Sequence[str],
    share: str,
    seeds: Sequence[int],
    cores: Sequence[int],
    teachers: Sequence[Path],
) -> None:
    """Train the cells that are missing, seed by seed, one on each core."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {(row["name"], row["share"], row["seed"]) for row in rows_in(folder)}
    cells = [
        (name, share, seed) for seed in seeds for name in names if (label_of(name, teachers), share, seed) not in done
    ]
    idle: SimpleQueue[int] = SimpleQueue()
    for core in cores:
        idle.put(core)

    def run(cell: tuple[str, str, int]) -> None:
        core = idle.get()
        try:
            row = train_cell(folder, captions, *cell, core, teachers)
        finally:
            idle.put(core)
        with (folder / "cells.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['name']}, seed {row['seed']}: loss {row['loss']:.3f}, BLEU {row['bleu']:.2f}", file=sys.stderr)

    with ThreadPoolExecutor(len(cores)) as pool:
        list(pool.map(run, cells))


def show(folder: Path) -> None:
    """Print the table of all cells."""
    rows = rows_in(folder)
    metric: Any = bleu_metric("none", lowercase=False)

    def bleu_of(sums: np.ndarray) -> np.ndarray:
        return np.array([metric._compute_score_from_stats(row).score for row in np.rint(sums).astype(int).tolist()])

    head("Changes of the recipe, validation")
    lines = []
    for name, share in dict.fromkeys((row["name"], row["share"]) for row in rows):
        own = {row["seed"]: row for row in rows if (row["name"], row["share"]) == (name, share)}
        base = {row["seed"]: row for row in rows if (row["name"], row["share"]) == ("recipe", share)}
        differences = [
            bleu_of(resampled_sums(np.array(own[seed]["statistics"])))
            - bleu_of(resampled_sums(np.array(base[seed]["statistics"])))
            for seed in own.keys() & base.keys()
        ]
        interval = "" if name == "recipe" or not differences else _interval(np.mean(differences, 0))
        means = [np.mean([row[key] for row in own.values()]) for key in ("loss", "bleu", "minutes")]
        seeds = " ".join(map(str, sorted(own)))
        lines.append(
            [name, f"{UPDATES[share]:,}", seeds, f"{means[0]:.3f}", f"{means[1]:.2f}", interval, f"{means[2]:.0f}"]
        )
    table(["change", "updates", "seeds", "loss", "BLEU", "difference (95 %)", "minutes"], lines)


def _interval(differences: np.ndarray) -> str:
    low, high = np.percentile(differences, (2.5, 97.5))
    return f"{differences.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def search(runs: Sequence[Path], captions: Captions) -> None:
    """Print the BLEU of an ensemble on the validation pairs for several length penalties."""
    pairs, translator = captions.pairs("val"), load_ensemble(runs)
    head("Length penalties, validation")
    rows = []
    for form, penalties in PENALTIES.items():
        for penalty in penalties:
            row = [form, f"{penalty}"]
            for beam in (5, 10):
                settings = SearchSettings(beam=beam, length_penalty=penalty, length_form=form)
                judge = BleuJudge(translator, pairs, "none", settings)
                sums = judge.statistics().sum(0, keepdims=True)
                row += [f"{judge.metric.score(sums)[0]:.2f}", f"{sums[0][0] / sums[0][1]:.3f}"]
            rows.append(row)
    words = "words, share of the references'"
    table(["form", "length penalty", "BLEU, beam 5", words, "BLEU, beam 10", words], rows)


def speed(runs: Sequence[Path], captions: Captions) -> None:
    """Print the speed of an ensemble as a share of one model's speed divided by the number of models."""
    lines = [source for source, _ in captions.pairs("val")[:300]]
    one, ensemble = load(runs[0]), load_ensemble(runs)

    def seconds(translator: Translator, settings: SearchSettings, times: int) -> float:
        begin = time.process_time()
        for _ in range(times):
            translator.translate(lines, settings)
        return time.process_time() - begin

    head("Ensemble decoding")
    rows = []
    for name, settings, rounds in (("greedy", SearchSettings(), 14), ("beam 5", SEARCH, 6)):
        pairs = [(seconds(one, settings, len(runs)), seconds(ensemble, settings, 1)) for _ in range(rounds)]
        alone, together = (min(side) for side in zip(*pairs, strict=True))
        shares = [first / second for first, second in pairs]
        speeds = [len(lines) * len(runs) / alone, len(lines) / together]
        rows.append(
            [name, *(f"{value:.1f}" for value in speeds), f"{alone / together:.2f}", f"{np.median(shares):.2f}"]
        )
    share = f"share of 1/{len(runs)}"
    table(["search", "one model, lines/s", f"{len(runs)} models", share, "median of the rounds"], rows)


def main() -> None:
    """Train cells, print their table, or measure an ensemble."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    trainer, printer, searcher, timer = (commands.add_parser(name) for name in ("train", "table", "search", "speed"))
    trainer.add_argument("folder", type=Path)
    trainer.add_argument("names", nargs="+", choices=CHANGES, metavar="NAME")
    trainer.add_argument("--share", choices=UPDATES, default="short")
    trainer.add_argument("--seeds", type=int, nargs="+", default=[1])
    trainer.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    printer.add_argument("folder", type=Path)
    trainer.add_argument("--teacher", type=Path, nargs="+", default=[], metavar="RUN")
    for reader in (searcher, timer):
        reader.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for reader in (trainer, searcher, timer):
        reader.add_argument("--data", type=Path, default=Path(os.environ.get("ATTENT_DATA", ".")) / "multi30k")
        reader.add_argument("--pair", choices=("en-de", "de-en", "en-fr"), default="en-de")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "train":
        cells = options.names, options.share, options.seeds, options.cores
        train(options.folder, Captions(options.data, options.pair), *cells, options.teacher)
    elif options.command == "table":
        show(options.folder)
    else:
        {"search": search, "speed": speed}[options.command](options.runs, Captions(options.data, options.pair))


if __name__ == "__main__":
    main()
