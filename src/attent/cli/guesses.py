"""How well a run guesses blanks: what `attent evaluate` says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attent.cli.output import say, write
from attent.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from attent.data.tokenizer import Tokenizer
    from attent.decoding.fill_mask import FillMask
    from attent.evaluation.masked_lm import MaskedLMReport
    from attent.evaluation.ngrams import Trigrams


def evaluate_blanks(run: Path, filler: FillMask, text: Path, against: Path | None, *, as_json: bool) -> None:
    """Judge a run that fills blanks on every word of a text, beside counts of the text that it was trained on.

    Raises:
        ArgumentError: there is no word to guess.
        DataError: a file cannot be read.
    """
    from attent.data.readers import read_lines
    from attent.evaluation.masked_lm import evaluate_masked_lm

    some = list(read_lines(text))
    counted = _counted(run, against, filler.tokenizer)
    say(f"guessing every word of {len(some):,} lines of {text}")
    found = evaluate_masked_lm(filler, some, counted)
    if found is None:
        raise ArgumentError(f"{text} has no word that this model knows")
    report = asdict(found)
    report["ways"] = report.pop("scores")
    write(json.dumps(report, indent=2) if as_json else "\n".join(said(found)))


def said(found: MaskedLMReport) -> list[str]:
    """The same for a person."""
    widest = max(map(len, found.scores))
    ways = [f"{name:{widest}}  top-1 {way.accuracy:6.2f} %  perplexity {way.perplexity:8.2f}" for name, way in found.scores.items()]
    left_out = [(found.unknown, "words that the model does not know"), (found.long, "lines that it cannot read")]
    counted = f"{found.blanks:,} blanks, each alone in one of {found.lines:,} lines"
    return [*ways, "; ".join([counted, *(f"{number:,} {what} left out" for number, what in left_out if number)])]


def _counted(run: Path, against: Path | None, tokenizer: Tokenizer) -> Trigrams | None:
    """What is counted in the training text; None, and said, where that is not to be had."""
    from attent.data.readers import read_lines
    from attent.evaluation.ngrams import Trigrams

    try:
        texts = _learnt(run, tokenizer) if against is None else (tokenizer.encode(line) for line in read_lines(against) if line.strip())
        return None if texts is None else Trigrams(texts, tokenizer.size)
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        say(f"no yardsticks: {error}")
        return None


def _learnt(run: Path, tokenizer: Tokenizer) -> Iterator[list[int]] | None:
    """What a run was trained on: neither what it was validated on nor what was too long; None, and said, where a file is gone."""
    from attent.data.corpus import line_corpus
    from attent.data.readers import STANDARD_INPUT
    from attent.data.settings import LinesSettings
    from attent.runs.config import read_config

    table = read_config(run).corpus.get("lines", {"train": STANDARD_INPUT})
    gone = [str(table[part]) for part in ("train", "valid") if table.get(part) is not None and not Path(table[part]).is_file()]
    if gone:
        say(f"no yardsticks: the text that {run} was trained on is not at {gone[0]}; --against FILE names it")
        return None
    settings = LinesSettings.model_validate(table)
    encoded = (tokenizer.encode(line) for line in line_corpus(settings).train)
    return (tokens for tokens in encoded if len(tokens) <= settings.maximum_length)
