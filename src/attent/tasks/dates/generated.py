"""Corpora that are generated from their settings, such as dates: all that generic commands ask of them.

A new kind of generated corpus is one more entry of `GENERATED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attent.errors import ArgumentError, RunError

if TYPE_CHECKING:
    from attent.alignment.aligner import TokenizedPair
    from attent.text.text import Gold, Pair
    from attent.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class GeneratedCorpus:
    """A generated corpus with its gold alignments.

    Args:
        validation: pairs to choose a layer and a head on.
        held_out: test sets by name.
        tokenize: encodes a pair (source, target) by two tokenizers, with the units that gold links are between.
        gold_links: the gold links of a pair.
    """

    validation: Sequence[Pair]
    held_out: Mapping[str, Sequence[Pair]]
    tokenize: Callable[[str, str, tuple[Tokenizer, Tokenizer]], TokenizedPair]
    gold_links: Callable[[Pair], Gold]

    def with_gold(
        self, pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer]
    ) -> tuple[list[TokenizedPair], list[Gold]]:
        """Return the encoded pairs and the gold links of each."""
        return [self.tokenize(pair.source, pair.target, tokenizers) for pair in pairs], [
            self.gold_links(pair) for pair in pairs
        ]


def generated_name(corpus: Mapping[str, Any]) -> str | None:
    """Return the name of a run's generated corpus, such as "dates"; None if its corpus is read from files.

    Args:
        corpus: the tables of the corpus settings by name (`RunConfig.corpus`).
    """
    return next((name for name in GENERATED if name in corpus), None)


def regenerate(run: Path, corpus: Mapping[str, Any]) -> GeneratedCorpus:
    """Generate the corpus of a run again.

    Args:
        run: the run folder, named in messages.
        corpus: the tables of the corpus settings by name (`RunConfig.corpus`).

    Raises:
        ArgumentError: the corpus was read from files.
        RunError: its settings are damaged.
    """
    name = generated_name(corpus)
    if name is None:
        raise ArgumentError(
            f"{run} was not trained on a corpus that can be made again, such as dates; --source FILE --target FILE "
            "names one"
        )
    try:
        return GENERATED[name](corpus[name])
    except ValueError as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error


def output_check(corpus: Mapping[str, Any]) -> Callable[[str], str | None] | None:
    """Return the check of a run's translations, which gives the reason why one is malformed.

    None if any text will do.
    """
    if "dates" not in corpus:
        return None
    from attent.tasks.dates.checks import is_date

    return lambda translation: None if is_date(translation) else f"the answer {translation!r} is no date"


def _dates(settings: Mapping[str, Any]) -> GeneratedCorpus:
    from attent.tasks.dates import DatesSettings, dates
    from attent.tasks.dates.corpus import gold_links, tokenize_dates

    corpus = dates(DatesSettings.model_validate(settings))
    return GeneratedCorpus(corpus.validation, corpus.held_out, tokenize_dates, gold_links)


GENERATED: dict[str, Callable[[Mapping[str, Any]], GeneratedCorpus]] = {"dates": _dates}
