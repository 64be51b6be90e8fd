"""Train models on the same data with the same budget and seeds, evaluate them, and plot the results.

    scripts/bench compare length [--data multi30k]
    scripts/bench compare scores [--scores dot,mypart:Diag] [--train pairs.tsv]
    scripts/bench compare normalizers [--normalizers softmax,sparsemax]

`length` shows quality by source length for RNNs without attention, with Bahdanau's or Luong's, and for a
Transformer; `scores` and `normalizers` train an RNN with Luong's attention and a Transformer with each part. Each
training gets a run folder inside the comparison's folder. Run an interrupted comparison again to continue it: finished
trainings are not repeated. The table is printed, and saved in the folder with the plots and a JSON file of all points.
Intervals are 95 %, from resampling the test sentences.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from comparison import length, parts
from comparison.trainings import Options

from attent.cli.output import say
from attent.errors import ArgumentError, AttentError, refuse
from attent.registry import current_folder_searched
from attent.text.readers import STANDARD_INPUT

RUNS = "runs/compare-"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="experiment", required=True)
    for name in ("length", "scores", "normalizers"):
        command = commands.add_parser(name)
        command.add_argument("--minutes", type=float, help="maximum minutes per training")
        command.add_argument("--updates", type=int, help="updates per training")
        command.add_argument("--seeds", type=int, help="number of seeds per model: 1, 2 and so on")
        command.add_argument("--models", help="compare only these models: NAME,NAME…")
        command.add_argument("--out", type=Path, help=f"comparison folder; {RUNS}NAME unless given")
        if name == "length":
            command.add_argument("--data", type=Path, help="Multi30k folder; only dates are compared unless given")
            continue
        command.add_argument(f"--{name}", dest="parts", help="compare only these, by name or module:Class: NAME,NAME…")
        command.add_argument("--train", help="training pairs instead of dates: a .tsv or .jsonl, also .gz")
        command.add_argument("--valid", help="validation pairs; split off the training pairs unless given")
    return parser.parse_args(arguments)


def run(arguments: Sequence[str]) -> None:
    """Train, print the table, and write the files.

    Raises:
        AttentError: an option is wrong, or the folder cannot be used.
    """
    chosen = options(arguments)
    budget: dict[str, Any] = {name: getattr(chosen, name) for name in ("minutes", "updates", "seeds")}
    refuse(
        *((value is not None and value <= 0, f"--{name} must be > 0, got {value}") for name, value in budget.items())
    )
    budget["models"] = _names(chosen.models)
    folder = chosen.out or Path(f"{RUNS}{chosen.experiment}")
    if chosen.experiment == "length":
        compared = length.compare(Options(folder, data=chosen.data, **budget), say=say)
    else:
        files = {name: file for name in ("train", "valid") if (file := getattr(chosen, name)) is not None}
        refuse(
            ("valid" in files and "train" not in files, "--valid goes with --train"),
            (
                STANDARD_INPUT in files.values(),
                "a comparison reads its pairs for each training, so they cannot come from standard input: use a file",
            ),
        )
        experiment = partial(parts.compare, slot=chosen.experiment)
        compared = experiment(Options(folder, text=files or None, parts=_names(chosen.parts), **budget), say=say)
    command = shlex.join(["scripts/bench", "compare", *arguments])
    compared = replace(compared, report=replace(compared.report, command=command))
    written = compared.write(folder)
    print("\n".join(compared.report.lines()).lstrip())
    say(f"written: {', '.join(map(str, written))}")
    if not any(path.suffix == ".png" for path in written):
        say("no pictures were drawn, since they need matplotlib: pip install '.[plot]'")


def _names(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == []:
        raise ArgumentError(f"names to compare must be separated by commas, got {text!r}")
    return names


def main() -> None:
    """Compare; an error prints one line."""
    try:
        # custom parts are named by the user
        with current_folder_searched():
            run(sys.argv[1:])
    except AttentError as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
