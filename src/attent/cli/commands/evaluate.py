"""attent evaluate: scores of a run on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import (
    AUTO,
    Device,
    LengthForm,
    RunFolder,
    TargetLanguage,
    TrustCode,
    Weights,
    device_of,
    known_language,
    loaded,
    search_settings,
)
from attent.errors import ArgumentError, RunError

if TYPE_CHECKING:
    from attent.runs.config import Task


def evaluate(
    run: RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    source: Annotated[
        Path | None, typer.Option(help="Lines to translate, also .gz; the corpus' held-out sets unless given.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
    text: Annotated[
        Path | None, typer.Option(help="Of a language model: lines whose tokens it predicts, each blank or next one.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="The text to count words in beside it; what it was trained on unless given.")
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Of a run that classifies: pictures or vectors with their labels.")
    ] = None,
    labelled: Annotated[Path | None, typer.Option(help="The same, texts with their labels, a .tsv.")] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="How sacreBLEU cuts these into words, by the target's language unless given; none if that has been "
            "done."
        ),
    ] = None,
    target_language: TargetLanguage = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU and chrF2 of small letters.")] = False,
    beam: Annotated[int | None, typer.Option(help="As for translate.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="As for translate.")] = None,
    length_form: LengthForm = None,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Judge a run on its corpus' held-out sets, made again from its settings, or on a file and its references.

    A run on pairs in files is judged on its validation, which is read or split off again, if the files are where they
    were and what it learnt is still the same.

    Exact match is the share of translations that are right to the last character; year alignment is how often the step
    that writes a digit of the year looks most at the year in the source, and AER the alignment error rate beside the
    known links of the dates (0 is best; attent align RUN --gold dates says more). A file is judged by BLEU, chrF2,
    exact match, and the loss of its references in nats per token.

    A run that fills blanks is judged on a text, of which every word in turn is hidden in its line: by how often its
    first guess is right and by perplexity, beside counts of one and of three words in its training text. A run that
    generates text is judged by the probability of every next token, in nats and bits a token, bits a byte and
    perplexity, beside the same counts; without a text on its validation. A run that classifies is judged by accuracy
    and macro F1, with the table of which class was taken for which.
    """
    settings = search_settings(beam=beam, length_penalty=length_penalty, length_form=length_form)
    from attent.runs.config import DOES, must_do, read_config

    options: dict[Task, dict[str, object]] = {
        "translate": {
            "--source": source,
            "--target": target,
            "--beam": beam,
            "--length-penalty": length_penalty,
            "--length-form": length_form,
            "--target-language": target_language,
        },
        "fill-mask": {"--text": text, "--against": against},
        "text-generation": {"--text": text, "--against": against},
        "classify": {"--images": images, "--labelled": labelled},
    }
    task: Task = "translate"
    if text is not None:
        task = "text-generation" if read_config(run).task == "text-generation" else "fill-mask"
    elif images is not None or labelled is not None or read_config(run).task == "classify":
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
    of_files = {"--lowercase": lowercase or None, "--tokenize": tokenize, "--target-language": target_language}
    if (
        task == "translate"
        and source is None
        and (names := [name for name, value in of_files.items() if value is not None])
    ):
        raise ArgumentError(f"{names[0]} is for --source FILE --target FILE")
    if task == "text-generation" and text is None and against is not None:
        raise ArgumentError("--against goes with --text FILE")
    from attent.cli.evaluation import (
        evaluate_classes,
        evaluate_held_out,
        evaluate_mask_filling,
        evaluate_next_tokens,
        evaluate_translations,
    )

    model = loaded(run, device_of(device), task, trust_code=trust_code, dtype=dtype)
    if task == "text-generation":
        evaluate_next_tokens(run, model, text, against, as_json=as_json)
    elif text is not None:
        evaluate_mask_filling(run, model, text, against, as_json=as_json)
    elif task == "classify":
        evaluate_classes(run, model, images, labelled, as_json=as_json)
    elif source is not None and target is not None:
        from attent.tasks.translation.metrics import bleu_tokenizer

        language = known_language(target_language) or model.config.target_language
        evaluate_translations(
            model, source, target, settings, tokenize or bleu_tokenizer(language), lowercase=lowercase, as_json=as_json
        )
    else:
        evaluate_held_out(run, model, settings, as_json=as_json)
