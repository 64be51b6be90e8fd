"""attent evaluate: how good a run is on what was held out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import Device, TrustCode, device_of, loaded
from attent.cli.output import say, write
from attent.devices import AUTO
from attent.errors import ArgumentError, RunError

if TYPE_CHECKING:
    from attent.data.text import TranslationCorpus
    from attent.decoding.settings import SearchSettings
    from attent.decoding.translator import Translator
    from attent.evaluation.metrics import MetricScore
    from attent.runs.config import Task
    from attent.tasks.task import Results

# What there are so many of.
COUNTED = ("pairs", "lines", "examples")
# The scores that a line of results shows where it has them, how they are written, and their unit.
SHOWN = (
    ("exact_match", "exact match", "5.1f", " %"),
    ("year_alignment", "year alignment", "5.1f", " %"),
    ("AER", "AER", ".3f", ""),
    ("BLEU", "BLEU", "5.1f", ""),
    ("chrF2", "chrF2", "5.1f", ""),
    ("exact match", "exact match", "5.1f", " %"),
    ("loss", "loss", "5.3f", " nats per token"),
    ("accuracy", "top-1", "5.1f", " %"),
    ("macro F1", "macro F1", "5.1f", " %"),
)


def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    source: Annotated[Path | None, typer.Option(help="Lines to translate, also .gz; the corpus' held-out sets unless given.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
    text: Annotated[Path | None, typer.Option(help="Of a run that fills blanks: lines whose words it guesses one by one.")] = None,
    against: Annotated[Path | None, typer.Option(help="The text to count words in beside it; what it was trained on unless given.")] = None,
    images: Annotated[str | None, typer.Option(help="Of a run that classifies: pictures or vectors with their labels.")] = None,
    labelled: Annotated[Path | None, typer.Option(help="The same, texts with their labels, a .tsv.")] = None,
    tokenize: Annotated[str, typer.Option(help="How sacreBLEU cuts these into words; none if that has been done.")] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU and chrF2 of small letters.")] = False,
    beam: Annotated[int | None, typer.Option(help="As for translate, of these lines.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="As for translate, of these lines.")] = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Judge a run on its corpus' held-out sets, which are made again from its settings, or on a file and its references.

    A run on pairs in files is judged on its validation, which is read or split off again, if the files are where they were and
    what it learnt is still the same.

    Exact match is the share of translations that are right to the last character; year alignment is how often the step
    that writes a digit of the year looks most at the year in the source, and AER the alignment error rate beside the known
    links of the dates (0 is best; attent align RUN --gold dates says more). A file is judged by BLEU, chrF2, exact match,
    and the loss of its references in nats per token.

    A run that fills blanks is judged on a text, of which every word in turn is hidden in its line: by how often its first guess is right
    and by perplexity, beside counts of one and of three words in its training text. A run that classifies is judged by accuracy and
    macro F1, with the table of which class was taken for which.
    """
    from attent.cli.commands.translate import search_settings

    settings = search_settings(beam=beam, length_penalty=length_penalty)
    named: dict[Task, dict[str, object]] = {
        "translate": {"--source": source, "--target": target, "--beam": beam, "--length-penalty": length_penalty},
        "fill-mask": {"--text": text, "--against": against},
        "classify": {"--images": images, "--labelled": labelled},
    }
    if text is not None:
        from attent.cli.guesses import evaluate_blanks

        _must_be_for("fill-mask", named)
        filler = loaded(run, device_of(device), "fill-mask", trust_code=trust_code)
        evaluate_blanks(run, filler, text, against, as_json=as_json)
        return
    if images is not None or labelled is not None or _classifies(run):
        from attent.cli.classes import evaluate_classes

        _must_be_for("classify", named)
        classifier = loaded(run, device_of(device), "classify", trust_code=trust_code)
        evaluate_classes(run, classifier, images, labelled, as_json=as_json)
        return
    _must_translate(run)
    _must_be_for("translate", named)
    if (source is None) != (target is None):
        raise ArgumentError("lines to translate and their references go together: --source FILE --target FILE")
    if source is not None and target is not None:
        translator = loaded(run, device_of(device), "translate", trust_code=trust_code)
        _evaluate_files(translator, source, target, settings, tokenize, lowercase=lowercase, as_json=as_json)
        return
    if beam is not None or length_penalty is not None or lowercase:
        raise ArgumentError("--beam, --length-penalty and --lowercase are for --source FILE --target FILE")
    translator = loaded(run, device_of(device), "translate", trust_code=trust_code)
    results = _validation(run, translator) or _held_out(run, translator)
    write(json.dumps(results, indent=2) if as_json else "\n".join(lines(results)))


def _validation(run: Path, translator: Translator) -> Results | None:
    """The scores of the validation of a corpus in files; None of another corpus."""
    from attent.runs.config import read_config
    from attent.tasks.recipe import validate

    return validate(run, translator.model, say) if "text" in read_config(run).corpus else None


def _held_out(run: Path, translator: Translator) -> Results:
    from attent.tasks.translation import evaluate_generated

    corpus = corpus_of(run)
    say(f"translating {' and '.join(f'{len(pairs)} pairs of {name}' for name, pairs in corpus.held_out.items())}")
    return evaluate_generated(translator, corpus.held_out)


def corpus_of(run: Path) -> TranslationCorpus:
    """The corpus that a run was trained on, made again.

    Raises:
        ArgumentError: it was trained on one that cannot be made again.
        RunError: the settings of its corpus are damaged.
    """
    from attent.data.dates import DatesSettings, dates
    from attent.runs.config import read_config

    tables = read_config(run).corpus
    if "dates" not in tables:
        raise ArgumentError(
            f"{run} was not trained on a corpus that can be made again, such as dates; --source FILE --target FILE names one"
        )
    try:
        settings = DatesSettings.model_validate(tables["dates"])
    except ValueError as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error
    return dates(settings)


def _must_be_for(task: Task, named: Mapping[Task, Mapping[str, object]]) -> None:
    """Refuse options, by the task that they are for, which a run of this one would not look at."""
    from attent.runs.config import DOES

    for other, options in named.items():
        if other != task and (given := [name for name, value in options.items() if value is not None]):
            raise ArgumentError(f"{given[0]} is for a run that {DOES[other][0]}, not for one that {DOES[task][0]}")


def _must_translate(run: Path) -> None:
    from attent.runs.config import must_do, read_config

    config = read_config(run)
    if config.task == "fill-mask":
        raise RunError(f"{run} fills blanks, and is judged on a text: attent evaluate {run} --text FILE")
    must_do(run, config, "translate")


def _unit(unit: str, scores: Mapping[str, float]) -> str:
    return unit.replace("token", "example") if "examples" in scores else unit


def _classifies(run: Path) -> bool:
    from attent.runs.config import read_config

    return read_config(run).task == "classify"


def lines(results: Results) -> list[str]:
    """The results for a person, a line for each test set."""
    width = max(map(len, results), default=0)
    shown = {
        name: "  ".join(f"{title} {scores[key]:{form}}{_unit(unit, scores)}" for key, title, form, unit in SHOWN if key in scores)
        for name, scores in results.items()
    }
    counted = {name: _counted(scores) for name, scores in results.items()}
    return [f"{name:{width}}  {shown[name]}  ({counted[name]})" for name in results]


def _counted(scores: Mapping[str, float]) -> str:
    """How much was judged; of a long validation a part is translated."""
    said = next((f"{scores[what]:,.0f} {what}" for what in COUNTED if what in scores), "")
    part = scores.get("translated")
    return said if part in (None, scores.get("pairs")) else f"{said}, {part:,.0f} of them translated"


def _evaluate_files(
    translator: Translator, source: Path, target: Path, settings: SearchSettings, tokenize: str, *, lowercase: bool, as_json: bool
) -> None:
    from attent.data.readers import read_lines as read_lines
    from attent.evaluation.metrics import bleu, chrf

    sources, references = list(read_lines(source)), list(read_lines(target))
    if not sources or len(sources) != len(references):
        raise ArgumentError(
            f"each line needs one reference, got {len(sources)} lines and {len(references)} references ({source}, {target})"
        )
    say(f"translating {len(sources):,} lines of {source}")
    translations = translator.translate(sources, settings)
    by_words = bleu(translations, references, tokenize, lowercase=lowercase)
    measured = _measure(translator, sources, references, translations, by_words, chrf(translations, references, lowercase=lowercase))
    write(json.dumps(measured, indent=2) if as_json else "\n".join(measured_lines(measured)))


def _measure(
    translator: Translator,
    sources: list[str],
    references: list[str],
    translations: list[str],
    by_words: MetricScore,
    by_characters: MetricScore,
) -> dict[str, Any]:
    from attent.evaluation.metrics import exact_match, loss

    read = [pair for pair in zip(sources, references, strict=True) if translator.can_read(*pair)]
    if len(read) < len(sources):
        say(f"{len(sources) - len(read):,} pairs have more tokens than this model can read: the loss is that of the others")
    return {
        "pairs": len(references),
        "refusals": sum(translator.refusal(source) is not None for source in sources),
        "bleu": by_words.score,
        "bleu_signature": by_words.signature,
        "chrf": by_characters.score,
        "chrf_signature": by_characters.signature,
        "exact_match": exact_match(translations, references),
        "loss": loss(translator.score(read)) if read else None,
    }


def measured_lines(measured: dict[str, Any]) -> list[str]:
    """What was measured on a file, for a person."""
    pairs = f"{measured['pairs']:,} pairs" + (f", {measured['refusals']:,} of them not translated" if measured["refusals"] else "")
    return [
        f"BLEU         {measured['bleu']:6.2f}    {measured['bleu_signature']}",
        f"chrF2        {measured['chrf']:6.2f}    {measured['chrf_signature']}",
        f"exact match  {measured['exact_match']:6.2f} %",
        f"loss         {measured['loss']:7.3f} nats per token, {pairs}" if measured["loss"] is not None else "loss  none",
    ]
