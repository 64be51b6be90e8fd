"""attent evaluate: scores of a run on held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from attent.cli.options import BeamSearch, Json, RunFolder, TargetLanguage, TypedLoading, known_language
from attent.errors import ArgumentError, RunError
from attent.setting import Help

if TYPE_CHECKING:
    from attent.runs.config import Task


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
    settings, source, target, text = search.settings(), held_out.source, held_out.target, held_out.text
    from attent.runs.config import DOES, must_do, read_config

    options: dict[Task, dict[str, object]] = {
        "translate": {
            "--source": source,
            "--target": target,
            **{search.options[name]: value for name, value in search.values.items()},
            "--target-language": held_out.target_language,
        },
        "fill-mask": {"--text": text, "--against": held_out.against},
        "text-generation": {"--text": text, "--against": held_out.against},
        "classify": {"--images": held_out.images, "--labelled": held_out.labelled},
    }
    task: Task = "translate"
    if text is not None:
        task = "text-generation" if read_config(run).task == "text-generation" else "fill-mask"
    elif held_out.images is not None or held_out.labelled is not None or read_config(run).task == "classify":
        task = "classify"
    elif read_config(run).task == "text-generation":
        task = "text-generation"
    else:
        config = read_config(run)
        if config.task == "fill-mask":
            raise RunError(f"{run} fills blanks, and is judged on a text: attent evaluate {run} --text FILE")
        must_do(run, config, task)
    for other_task, values in options.items():
        if other_task != task and (
            names := [name for name, value in values.items() if value is not None and name not in options[task]]
        ):
            raise ArgumentError(f"{names[0]} is for a run that {DOES[other_task][0]}, not for one that {DOES[task][0]}")
    if task == "translate" and (source is None) != (target is None):
        raise ArgumentError("lines to translate and their references go together: --source FILE --target FILE")
    of_files = {
        "--lowercase": held_out.lowercase or None,
        "--tokenize": held_out.tokenize,
        "--target-language": held_out.target_language,
    }
    if (
        task == "translate"
        and source is None
        and (names := [name for name, value in of_files.items() if value is not None])
    ):
        raise ArgumentError(f"{names[0]} is for --source FILE --target FILE")
    if task == "text-generation" and text is None and held_out.against is not None:
        raise ArgumentError("--against goes with --text FILE")
    from attent.cli.evaluation import (
        evaluate_classes,
        evaluate_held_out,
        evaluate_mask_filling,
        evaluate_next_tokens,
        evaluate_translations,
    )

    model = loading.tool(run, task)
    if task == "text-generation":
        evaluate_next_tokens(run, model, text, held_out.against, as_json=as_json)
    elif text is not None:
        evaluate_mask_filling(run, model, text, held_out.against, as_json=as_json)
    elif task == "classify":
        evaluate_classes(run, model, held_out.images, held_out.labelled, as_json=as_json)
    elif source is not None and target is not None:
        from attent.tasks.translation.metrics import bleu_tokenizer

        language = known_language(held_out.target_language) or model.config.target_language
        tokenize = held_out.tokenize or bleu_tokenizer(language)
        evaluate_translations(model, source, target, settings, tokenize, lowercase=held_out.lowercase, as_json=as_json)
    else:
        evaluate_held_out(run, model, settings, as_json=as_json)
