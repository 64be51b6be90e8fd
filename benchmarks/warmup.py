"""Short trainings by warm-up, batch size, dropout, lines and minutes: BLEU of the validation translations.

    benchmarks/warmup.py DIR OUT [--parts batches,dropout,shares,hundred,kinds,minutes]

DIR is Multi30k's folder; OUT contains a run for each training, and finished runs are not trained again. Trainings are
measured in updates rather than minutes, so that a busy machine gives the same results: UPDATES is the number of updates
of 1,024 tokens that an otherwise idle core makes in two minutes. They use one thread, float32, and the suggested
settings except for those in the row; parts run in the given order.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from _sides import head, table

from attent.runs.config import read_config
from attent.tasks.suggestions import suggest
from attent.text.readers import read_lines

# Updates of 1,024 tokens in two minutes on one core of an AMD EPYC (Zen 3).
UPDATES = 588
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4)
LINES = (2_000, 10_000, 29_000)
# Pairs of German and French, raw, whose first so many are joined with those that follow them too.
JOINED = 15_016


@dataclass(frozen=True)
class Cell:
    """The settings of one training.

    Args:
        corpus: the name of the corpus.
        lines: the number of lines of the corpus to use, from the first on.
        updates: the number of updates.
        dropout: the model's dropout.
        batch_tokens: the tokens per batch.
        warmup: the share of the training used for warm-up.
    """

    corpus: str
    lines: int
    updates: int
    dropout: float
    batch_tokens: int = 1024
    warmup: float = 0.1

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return f"{self.corpus}-{self.lines}-{self.updates}-{self.dropout:g}-{self.batch_tokens}-{self.warmup:g}"

    def train(self, files: dict[str, Path], out: Path) -> list[str]:
        """Train unless the run is finished, and return its table row."""
        run = out / self.name
        if not (run / "config.json").is_file() or read_config(run).state != "finished":
            options = [word for option, file in files.items() for word in (f"--{option}", file)]
            changes = {
                "batch_tokens": self.batch_tokens,
                "warmup": self.warmup,
                "precision": '"float32"',
                "validate_every": 10**9,
            }
            options += [word for key, value in changes.items() for word in ("--set", f"training.{key}={value}")]
            options += ["--set", f"model.dropout={self.dropout}"]
            options += ["--updates", self.updates, "--threads", 1, "--replace", "--out", run]
            with (out / f"{self.name}.log").open("w", encoding="utf-8") as log:
                subprocess.run(
                    [sys.executable, "-m", "attent", "train", *map(str, options)], check=True, stdout=log, stderr=log
                )
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        scores = config["results"]["validation"]
        epochs = re.search(r"([\d.e+]+) epochs$", (out / f"{self.name}.log").read_text(encoding="utf-8"), re.MULTILINE)
        assert epochs is not None
        rates = [
            json.loads(line).get("learning_rate", 0.0)
            for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        peak = (rates.index(max(rates)) + 1) / len(rates)
        numbers = (
            f"{self.lines:,}",
            f"{self.updates:,}",
            f"{self.dropout:g}",
            f"{self.batch_tokens:,}",
            f"{self.warmup:.0%}",
            epochs[1],
        )
        return [self.corpus, *numbers, f"{peak:.0%}", f"{scores['loss']:.2f}", f"{scores['BLEU']:.1f}"]


PARTS = {
    "batches": [Cell("captions", 29_000, UPDATES * 1024 // tokens, 0.2, tokens) for tokens in (1024, 2048, 4096)],
    "dropout": [Cell("captions", 29_000, 300, dropout) for dropout in (0.1, 0.2)],
    "shares": [Cell("captions", 29_000, 300, 0.2, warmup=share) for share in SHARES],
    "hundred": [Cell("captions", 10_000, 100, 0.3, warmup=share) for share in SHARES],
    "kinds": [Cell("joined", 29_000 + JOINED, UPDATES, 0.1)],
    "minutes": [
        Cell("captions", lines, UPDATES * minutes // 2, suggest(lines, minutes=minutes)["model"]["dropout"])
        for minutes in (2, 4, 10)
        for lines in LINES
    ],
}


def write_corpus(cell: Cell, folder: Path, out: Path) -> dict[str, Path]:
    """Write the corpus of a training, and return its files by command option."""
    sides = ("en", "de") if cell.corpus == "captions" else ("de", "fr")
    files: dict[str, Path] = {}
    for side, language in zip(("source", "target"), sides, strict=True):
        train, valid = (
            folder / (f"tok/{part}.lc.norm.tok.{language}.gz" if cell.corpus == "captions" else f"{part}.{language}.gz")
            for part in ("train", "val")
        )
        lines = list(islice(read_lines(str(train)), min(cell.lines, 29_000)))
        if cell.corpus == "joined":
            lines += [f"{first} {second}" for first, second in islice(pairwise(lines), JOINED)]
        files[f"train-{side}"], files[f"valid-{side}"] = out / f"{cell.corpus}-{cell.lines}.{language}", valid
        files[f"train-{side}"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def main() -> None:
    """Train and print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    columns = [
        "corpus",
        "lines",
        "updates",
        "dropout",
        "tokens",
        "warm-up",
        "epochs",
        "largest rate at",
        "loss",
        "BLEU",
    ]
    for part in options.parts.split(","):
        rows = [cell.train(write_corpus(cell, options.folder, options.out), options.out) for cell in PARTS[part]]
        head(f"First trainings: {part}")
        table(columns, rows)


if __name__ == "__main__":
    main()
