"""attent evaluate: scores of a run on held-out data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from attent.cli.options import BeamSearch, Json, RunFolder, TargetLanguage, TypedLoading, known_language
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.setting import Help


@dataclass(frozen=True)
class HeldOut:
    """Data to evaluate a run on, its corpus' held-out sets unless given, and the comparison of texts."""

    source: Annotated[Path | None, Help("Lines to translate, also .gz; the held-out sets unless given.")] = None
    target: Annotated[Path | None, Help("References of --source, line by line.")] = None
    text: Annotated[Path | None, Help("Lines for a language model, whose tokens it predicts.")] = None
    against: Annotated[Path | None, Help("Text to count words in for comparison; the training text unless given.")] = (
        None
    )
    images: Annotated[str | None, Help("Labelled pictures or vectors for a classifier.")] = None
    labelled: Annotated[Path | None, Help("Labelled texts for a classifier, a .tsv.")] = None
    tokenize: Annotated[
        str | None,
        Help("Tokenizer of sacreBLEU; by the target language unless given, none if the text is tokenized already."),
    ] = None
    target_language: TargetLanguage = None
    lowercase: Annotated[bool, Help("Lowercase text before computing BLEU and chrF2.")] = False


def evaluate(
    run: RunFolder, held_out: HeldOut, search: BeamSearch, loading: TypedLoading, as_json: Json = False
) -> None:
    """Evaluate a run on the held-out sets of its corpus, or on a file and its references.

    A run trained on files of pairs is evaluated on its validation set, which is read or split off again, if the files
    still exist and still give the same training set.

    Exact match is the share of translations that are entirely right. Year alignment is how often the step that writes a
    digit of the year attends most to the year in the source; AER is the alignment error rate against the known links of
    the dates (0 is best; see attent align RUN --gold dates). Files are evaluated by BLEU, chrF2, exact match, and the
    loss of their references in nats per token.

    A run that fills blanks is evaluated on a text in which each word in turn is masked: by the accuracy of its first
    guess and by perplexity, compared with unigram and trigram counts of its training text. A run that generates text is
    evaluated by the probability of every next token, in nats and bits per token, bits per byte and perplexity, compared
    with the same counts; on its validation set unless a text is given. A classifier is evaluated by accuracy and macro
    F1, with a confusion matrix.
    """
    settings = search.settings()
    from attent.tasks.task import options_of, tasks

    stored = loading.stored_run(run)
    values = vars(held_out) | {"target_language": known_language(held_out.target_language)}
    options = {name: value for name, value in values.items() if value is not None and value is not False}
    options |= {"search": settings} if search.values else {}
    accepted = options_of(stored.task.evaluate)
    if unknown := next((name for name in options if name not in accepted), None):
        owner = next(task for task in tasks().values() if unknown in options_of(task.evaluate))
        option = f"--{unknown.replace('_', '-')}" if unknown != "search" else search.options[next(iter(search.values))]
        raise ArgumentError(f"{option} is for a run that {owner.does}, not for one that {stored.task.does}")
    evaluation = stored.task.evaluate(stored, say, **options)
    write(json.dumps(evaluation.table, indent=2) if as_json else "\n".join(evaluation.lines))
