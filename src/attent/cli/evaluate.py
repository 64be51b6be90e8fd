"""attent evaluate: how good a run is on what was held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.output import say
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.config.recipe import Results


def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Judge a run on its corpus' held-out sets, which are made again from its settings.

    Exact match is the share of translations that are right to the last character; year alignment is how often the step
    that writes a digit of the year looks most at the year in the source.
    """
    from attent.config.recipe import judge
    from attent.data.dates import DatesSettings, dates
    from attent.decoding.translator import Translator
    from attent.runs.folder import read

    found = read(run)
    if "dates" not in found.config.corpus:
        raise ArgumentError(f"{run} was not trained on a corpus that can be made again, such as dates")
    corpus = dates(DatesSettings.model_validate(found.config.corpus["dates"]))
    say(f"translating {' and '.join(f'{len(pairs)} pairs of {name}' for name, pairs in corpus.held_out.items())}")
    results = judge(Translator(found.model, found.source_tokenizer, found.target_tokenizer), corpus)
    print(json.dumps(results, indent=2) if as_json else "\n".join(lines(results)))


def lines(results: Results) -> list[str]:
    """The results for a person, a line for each test set."""
    width = max(map(len, results), default=0)
    return [
        f"{name:{width}}  exact match {scores['exact_match']:5.1f} %  year alignment {scores['year_alignment']:5.1f} %"
        f"  ({scores['pairs']:,.0f} pairs)"
        for name, scores in results.items()
    ]
