"""Evaluation of runs of every task for `attent evaluate`.

On held-out data, on files, and the lines that report the scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from attent.cli.output import say, write
from attent.errors import ArgumentError, DataError, RunError
from attent.runs.config import read_config
from attent.search.settings import SearchSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.corpus import (
    describe_dropped,
    drop_long,
    image_corpus,
    labelled_text_corpus,
    read_examples,
)
from attent.tasks.classification.examples import LabelledExamples
from attent.tasks.classification.inputs import PictureInputs
from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
from attent.tasks.classification.task import evaluate_classifier
from attent.tasks.dates.generated import regenerate
from attent.tasks.fill_mask.evaluation import MaskedLMReport, evaluate_masked_lm
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.recipe import validate
from attent.tasks.task import Results
from attent.tasks.text_generation.evaluation import LanguageModelReport, evaluate_language_model
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.metrics import bleu, chrf, exact_match, loss
from attent.tasks.translation.task import evaluate_generated, without_intervals
from attent.tasks.translation.translator import Translator
from attent.text.corpus import line_corpus
from attent.text.ngrams import Trigrams
from attent.text.readers import OVER_LONG, STANDARD_INPUT, read_labelled, read_lines, read_with_references
from attent.text.report import ReadReport
from attent.text.settings import LinesSettings
from attent.text.tokenizer import Tokenizer

# The units of the size of a test set.
SIZE_KEYS = ("pairs", "lines", "windows", "examples")
# The scores of a line of results, if it has them: key, title, format and unit.
SCORES = (
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


def _write(values: Mapping[str, Any], lines: list[str], *, as_json: bool) -> None:
    write(json.dumps(values, indent=2) if as_json else "\n".join(lines))


def result_lines(results: Results) -> list[str]:
    """Return the results for a person, a line for each test set."""
    width = max(map(len, results), default=0)
    lines: list[str] = []
    for name, scores in results.items():
        unit_of = "example" if "examples" in scores else "token"
        intervals = {key: f" ± {half:.1f}" for key, *_ in SCORES if (half := scores.get(f"{key} interval"))}
        cells = [
            f"{title} {scores[key]:{form}}{intervals.get(key, '')}{unit.replace('token', unit_of)}"
            for key, title, form, unit in SCORES
            if key in scores
        ]
        size = next((f"{scores[key]:,.0f} {key}" for key in SIZE_KEYS if key in scores), "")
        # of a long validation only a part is translated
        if (translated := scores.get("translated")) not in (None, scores.get("pairs")):
            size += f", {translated:,.0f} of them translated"
        lines.append(f"{name:{width}}  {'  '.join(cells)}  ({size})")
    return lines


def evaluate_held_out(run: Path, translator: Translator, settings: SearchSettings, *, as_json: bool) -> None:
    """Evaluate a translator on the validation of its corpus in files, or on its generated corpus' held-out sets."""
    tables = read_config(run).corpus
    results = validate(run, translator.model, say, settings) if "text" in tables else None
    if not results:
        corpus = regenerate(run, tables)
        say(f"translating {' and '.join(f'{len(pairs)} pairs of {name}' for name, pairs in corpus.held_out.items())}")
        results = evaluate_generated(translator, corpus.held_out, settings)
    _write(without_intervals(results), result_lines(results), as_json=as_json)


def evaluate_translations(
    translator: Translator,
    source: Path,
    target: Path,
    settings: SearchSettings,
    tokenize: str,
    *,
    lowercase: bool,
    as_json: bool,
) -> None:
    """Evaluate translations of the lines of a file by their references.

    Raises:
        ArgumentError: the files have not equally many lines, or none.
    """
    lines, references = read_with_references(source, target)
    say(f"translating {len(lines):,} lines of {source}")
    sources = [translator.read(line) for line in lines]
    translations = translator.translate(sources, settings)
    bleu_score = bleu(translations, references, tokenize, lowercase=lowercase)
    chrf_score = chrf(translations, references, lowercase=lowercase)
    readable = [pair for pair in zip(lines, references, strict=True) if translator.can_read(*pair)]
    if len(readable) < len(lines):
        say(
            f"{len(lines) - len(readable):,} pairs have more tokens than this model can read: the loss is that of "
            "the others"
        )
    values = {
        "pairs": len(references),
        "refusals": sum(source.refusal is not None for source in sources),
        "bleu": bleu_score.score,
        "bleu_signature": bleu_score.signature,
        "chrf": chrf_score.score,
        "chrf_signature": chrf_score.signature,
        "exact_match": exact_match(translations, references),
        "loss": loss(translator.score(readable)) if readable else None,
    }
    pairs = f"{values['pairs']:,} pairs" + (
        f", {values['refusals']:,} of them not translated" if values["refusals"] else ""
    )
    lines = [
        f"BLEU         {values['bleu']:6.2f}    {values['bleu_signature']}",
        f"chrF2        {values['chrf']:6.2f}    {values['chrf_signature']}",
        f"exact match  {values['exact_match']:6.2f} %",
        f"loss         {values['loss']:7.3f} nats per token, {pairs}" if values["loss"] is not None else "loss  none",
    ]
    _write(values, lines, as_json=as_json)


def evaluate_mask_filling(run: Path, fill_mask: FillMask, text: Path, against: Path | None, *, as_json: bool) -> None:
    """Evaluate a run on every word of a text as a blank, beside n-grams of the text that it was trained on.

    Raises:
        ArgumentError: the text has no word that the model knows.
        DataError: a file cannot be read.
    """
    lines = list(read_lines(text))
    trigrams = _count_trigrams(run, against, fill_mask.tokenizer)
    say(f"guessing every word of {len(lines):,} lines of {text}")
    report = evaluate_masked_lm(fill_mask, lines, trigrams)
    if report is None:
        raise ArgumentError(f"{text} has no word that this model knows")
    values = asdict(report)
    values["ways"] = values.pop("scores")
    _write(values, masked_lm_lines(report), as_json=as_json)


def masked_lm_lines(report: MaskedLMReport) -> list[str]:
    """Return the scores of blanks for a person."""
    width = max(map(len, report.scores))
    scores = [
        f"{name:{width}}  top-1 {score.accuracy:6.2f} %  perplexity {score.perplexity:8.2f}"
        for name, score in report.scores.items()
    ]
    left_out = [(report.unknown, "words that the model does not know"), (report.long, "lines that it cannot read")]
    size = f"{report.blanks:,} blanks, each alone in one of {report.lines:,} lines"
    return [*scores, "; ".join([size, *(f"{number:,} {kind} left out" for number, kind in left_out if number)])]


def evaluate_next_tokens(
    run: Path, generator: TextGenerator, text: Path | None, against: Path | None, *, as_json: bool
) -> None:
    """Evaluate a run on every token of a text, beside n-grams of the text that it was trained on.

    Without a text, evaluate it on its validation.

    Raises:
        ArgumentError: the text has no line that the model can read.
        DataError: a file cannot be read.
    """
    if text is None:
        results = validate(run, generator.model, say)
        _write(results, result_lines(results), as_json=as_json)
        return
    lines = [line for line in read_lines(text) if line.strip()]
    trigrams = _count_trigrams(run, against, generator.tokenizer)
    say(f"predicting every token of {len(lines):,} lines of {text}")
    report = evaluate_language_model(generator, lines, trigrams)
    if report is None:
        raise ArgumentError(f"{text} has no line that this model can read")
    _write(asdict(report), language_model_lines(report), as_json=as_json)


def language_model_lines(report: LanguageModelReport) -> list[str]:
    """Return the scores of next tokens for a person."""
    width = max(map(len, report.scores))
    scores = [
        f"{name:{width}}  {score.nats:6.3f} nats and {score.bits:6.3f} bits per token  {score.bits_per_byte:6.3f} "
        f"bits per byte  perplexity {score.perplexity:8.2f}"
        for name, score in report.scores.items()
    ]
    left_out = f"; {report.long:,} lines that it cannot read left out" if report.long else ""
    unknown = f", {report.unknown:,} of them unknown to the model" if report.unknown else ""
    return [
        *scores,
        f"{report.tokens:,} tokens{unknown}, and {report.bytes:,} bytes, in {report.lines:,} lines{left_out}",
    ]


def _count_trigrams(run: Path, against: Path | None, tokenizer: Tokenizer) -> Trigrams | None:
    """Count the n-grams of the training text; None, with a message, if it is not available."""
    try:
        if against is None:
            texts = training_texts(run, tokenizer)
        else:
            texts = (tokenizer.encode(line) for line in read_lines(against) if line.strip())
        return None if texts is None else Trigrams(texts, tokenizer.size)
    except DataError:
        raise
    except ValueError as error:
        say(f"no yardsticks: {error}")
        return None


def training_texts(run: Path, tokenizer: Tokenizer) -> Iterator[list[int]] | None:
    """Return the encoded texts of a run's training, without validation and long texts.

    None, with a message, if a file is gone.
    """
    table = read_config(run).corpus.get("lines", {"train": STANDARD_INPUT})
    missing = [
        str(table[part])
        for part in ("train", "valid")
        if table.get(part) is not None and not Path(table[part]).is_file()
    ]
    if missing:
        say(f"no yardsticks: the text that {run} was trained on is not at {missing[0]}; --against FILE names it")
        return None
    settings = LinesSettings.model_validate(table)
    encoded = (tokenizer.encode(line) for line in line_corpus(settings).train)
    return (tokens for tokens in encoded if len(tokens) <= settings.maximum_length or settings.packing == "text")


def evaluate_classes(
    run: Path, classifier: Classifier, images: str | None, labelled: Path | None, *, as_json: bool
) -> None:
    """Evaluate a classifier on the held-out examples of its corpus, which is read again, or on other labelled examples.

    Args:
        run: the run folder.
        classifier: of the run.
        images: pictures or vectors, all of which are classified.
        labelled: texts, all of which are classified.
        as_json: whether the scores are printed for machines.

    Raises:
        ArgumentError: the examples are not of the kind that the run reads, or its corpus holds none out.
        DataError: they cannot be read, or have a label that the run does not know.
    """
    if images is not None and labelled is not None:
        raise ArgumentError("--images and --labelled are of two runs")
    if labelled is not None:
        examples, line_numbers = _read_texts(classifier, labelled)
    elif images is not None:
        examples, line_numbers = _read_images(classifier, images), ()
    else:
        examples, line_numbers = _held_out_examples(run, classifier)
    examples = _drop_long(classifier, examples, line_numbers)
    say(f"classifying {len(examples):,} examples")
    loss, confusion = evaluate_classifier(classifier, examples)
    values = {
        "examples": int(confusion.counts.sum()),
        "accuracy": confusion.accuracy,
        "macro F1": confusion.macro_f1,
        "loss": loss,
        "labels": list(confusion.labels),
        "confusion": confusion.counts.tolist(),
    }
    lines = [
        f"accuracy  {confusion.accuracy:6.2f} %",
        f"macro F1  {confusion.macro_f1:6.2f} %",
        f"loss      {loss:6.3f} nats per example, {values['examples']:,} examples",
        "a row for each class that it was, a column for each that was told:",
        *confusion.table(),
    ]
    _write(values, lines, as_json=as_json)


def classified_examples(classifier: Classifier, source: str) -> LabelledExamples:
    """Read labelled texts of a .tsv, or labelled pictures or vectors, as the run reads, without those too long.

    Raises:
        ArgumentError: the examples are not of the kind that the run reads.
        DataError: they cannot be read, have a label that the run does not know, or are all too long.
    """
    if classifier.tokenizer is not None:
        return _drop_long(classifier, *_read_texts(classifier, Path(source)))
    return _drop_long(classifier, _read_images(classifier, source), ())


def _drop_long(classifier: Classifier, examples: LabelledExamples, line_numbers: Sequence[int]) -> LabelledExamples:
    """Return the examples that the model can read, and report the others."""
    if classifier.longest is None or not len(long := classifier.too_long(examples)):
        return examples
    say(describe_dropped(examples.selected[long], classifier.longest, line_numbers))
    if len(long) == len(examples):
        raise DataError("no example is left to be judged on")
    return LabelledExamples(examples.rows, examples.all_classes, np.delete(examples.selected, long))


def _held_out_examples(run: Path, classifier: Classifier) -> tuple[LabelledExamples, Sequence[int]]:
    """Return the test of a run's corpus, or else its validation, and the line numbers of its texts."""
    config, settings = read_config(run), None
    try:
        if "images" in config.corpus:
            corpus = image_corpus(ImagesSettings.model_validate(config.corpus["images"]))
        else:
            settings = LabelledSettings.model_validate(config.corpus["labelled"])
            corpus = labelled_text_corpus(settings)
    except (KeyError, ValidationError) as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error
    if not len(corpus.test) and not len(corpus.validation):
        raise ArgumentError(f"{run} holds nothing out to be judged on: --images or --labelled names other examples")
    if corpus.inputs.labels != classifier.labels:
        raise DataError(f"the corpus of {run} has other labels than it had")
    if config.digests.get("held out") not in (None, corpus.held_out_digest):
        raise DataError(
            f"the corpus of {run} has changed, and what it holds out now may have been trained on: --images or "
            "--labelled names others"
        )
    if len(corpus.test):
        return classifier.examples(corpus.data, corpus.classes, corpus.test), corpus.lines
    if settings is not None:
        # as in the validations of training
        corpus = drop_long(corpus, classifier.examples(corpus.data).lengths(), settings.maximum_length, "validation")
        for reason, tally in corpus.reports[0].dropped.items():
            if reason == OVER_LONG:
                say(f"{tally.count:,} dropped: {reason} ({tally.location()})")
    return classifier.examples(corpus.data, corpus.classes, corpus.validation), corpus.lines


def _read_images(classifier: Classifier, source: str) -> LabelledExamples:
    inputs, resize = classifier.inputs.inputs, dict[str, Any]()
    if isinstance(inputs, PictureInputs) and Path(source).is_dir():
        resize = {"size": (inputs.height, inputs.width), "colours": inputs.colours}
    data = read_examples(ImagesSettings.model_validate({"source": source, **resize}))
    assert data.classes is not None
    classes = _class_numbers(classifier, [data.labels[number] for number in data.classes], source)
    return classifier.examples(classifier.data(data), classes)


def _read_texts(classifier: Classifier, path: Path) -> tuple[LabelledExamples, Sequence[int]]:
    report = ReadReport(str(path))
    line_numbers, examples = zip(*read_labelled(str(path), report), strict=True)
    for line in report.summary():
        say(line)
    classes = _class_numbers(classifier, [example.label for example in examples], str(path))
    return classifier.examples(classifier.data([example.text for example in examples]), classes), line_numbers


def _class_numbers(classifier: Classifier, labels: list[str], source: str) -> np.ndarray:
    """Return the classes of labels, as the run numbers them."""
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    if unknown := sorted(set(labels) - numbers.keys()):
        known_labels = ", ".join(classifier.labels[:10]) + ", …" * (len(classifier.labels) > 10)
        raise DataError(f"{source}: the run does not know the label {unknown[0]!r}; it knows {known_labels}")
    return np.array([numbers[label] for label in labels], np.int64)
