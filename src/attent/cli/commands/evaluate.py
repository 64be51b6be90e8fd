"""attent evaluate: score a run on held-out data."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from attent.cli.options import BeamSearch, Json, Runs, TargetLanguage, TypedLoading, known_language
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.setting import Help


@dataclass(frozen=True)
class HeldOut:
    """Options for the data to evaluate a run on, and for the comparison of texts."""

    source: Annotated[Path | None, Help("Lines to translate, also .gz; the held-out sets unless given.")] = None
    target: Annotated[Path | None, Help("References of --source, line by line.")] = None
    text: Annotated[Path | None, Help("Lines whose tokens a language model predicts.")] = None
    images: Annotated[str | None, Help("Labeled pictures or vectors for a classifier; pictures with captions.")] = None
    labelled: Annotated[Path | None, Help("Labeled texts, or passages with questions and answers, as .tsv.")] = None
    tokenize: Annotated[
        str | None, Help("SacreBLEU's tokenizer, by the target language unless given; none for tokenized text.")
    ] = None
    target_language: TargetLanguage = None
    lowercase: Annotated[bool, Help("Lowercase text before computing BLEU and chrF2.")] = False


def evaluate(runs: Runs, held_out: HeldOut, search: BeamSearch, loading: TypedLoading, as_json: Json = False) -> None:
    """Evaluate a run on the held-out sets of its corpus, or on a file and its references.

    A run trained on files of pairs is evaluated on its validation set, which is read or split off again, if the files
    still exist and give the same training set. Translations are scored by BLEU, chrF2, exact match, and the loss of the
    references in nats per token. On dates, year alignment is the share of year digits written while attending most to
    the source's year, and AER is the alignment error rate against the known links (0 is best).

    A run that fills blanks is scored by the accuracy of its first guess and by perplexity on a text whose words are
    masked one at a time. A language model is scored by nats and bits per token, bits per byte and perplexity, on its
    validation set unless a text is given. A classifier is scored by accuracy and macro F1, with a confusion matrix;
    captions by BLEU and exact match; answers by exact match and token F1.

    Several translators with the same vocabularies are evaluated as an ensemble, which averages the probabilities of
    each next token.
    """
    settings = search.settings()
    from attent.tasks.task import options_of, tasks

    stored = loading.stored_run(runs or [])
    values = vars(held_out) | {"target_language": known_language(held_out.target_language)}
    options = {name: value for name, value in values.items() if value is not None and value is not False}
    options |= {"search": settings} if search.values else {}
    accepted = options_of(stored.task.evaluate)
    if unknown := next((name for name in options if name not in accepted), None):
        owners = " or ".join(task.does for task in tasks().values() if unknown in options_of(task.evaluate))
        option = f"--{unknown.replace('_', '-')}" if unknown != "search" else search.options[next(iter(search.values))]
        raise ArgumentError(f"{option} is for a run that {owners}, not for one that {stored.task.does}")
    evaluation = stored.task.evaluate(stored, say, **options)
    write(json.dumps(evaluation.table, indent=2) if as_json else "\n".join(evaluation.lines))
