"""Comparison of trained translators on lines with references, with a paired bootstrap."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attent.benchmark.report import Column, Report, ResultTable, machine_info
from attent.comparison.results import Figure, ModelComparison, Point, Series
from attent.comparison.trainings import Say, claim
from attent.errors import ArgumentError, check_known
from attent.runs.config import check_code, read_config
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.evaluation import PAIRED_RESAMPLES, TOKENIZERS, PairedScore, paired_bootstrap
from attent.tasks.translation.task import TranslationTask
from attent.tasks.translation.translator import load
from attent.text.readers import read_with_references

# A word, or a character in languages without spaces between words.
WORD = re.compile(r"[\u2e80-\U0010ffff]|[^\W\d_\u2e80-\U0010ffff]+")
# If a smaller share of words occurs in the references, the translations are probably in another language. Captions in
# two different languages share a tenth.
FEW_WORDS = 0.2
METRICS = {"BLEU": "bleu", "chrF2": "chrf"}


def compare(
    runs: Sequence[Path],
    source: Path,
    target: Path,
    out: Path,
    *,
    settings: SearchSettings = GREEDY,
    tokenize: str = "13a",
    lowercase: bool = False,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    say: Say = print,
) -> ModelComparison:
    """Translate lines with each run, and compare its BLEU and chrF2 with those of the first run.

    Args:
        runs: run folders of translators, at least two.
        source: file of the lines.
        target: file of their references.
        out: folder of the comparison.
        settings: search settings; greedy unless given.
        tokenize: sacreBLEU's tokenizer.
        lowercase: True to compare in lower case.
        device: device of the models.
        trust_code: True to import modules that the runs name.
        say: called with a line for each run, and with a warning for each that seems to be for another language.

    Raises:
        ArgumentError: there are fewer than two runs, one is named twice, their languages differ, lines and references
            differ in number, or the folder holds another comparison.
        UnknownNameError: the tokenizer is unknown.
        DataError: a file cannot be read.
        RunError: a run cannot be read, or does not translate.
    """
    _check_runs(runs, trust_code=trust_code)
    check_known("tokenizer of sacreBLEU", tokenize, TOKENIZERS)
    sources, references = read_with_references(source, target)
    claim(out, "runs")
    translations: dict[str, list[str]] = {}
    warnings: list[str] = []
    for run in runs:
        translator = load(run, device, trust_code=trust_code)
        say(f"translating {len(sources):,} lines of {source} with {run}")
        translations[str(run)] = translator.translate(sources, settings)
        if (share := share_of_words(translations[str(run)], references)) < FEW_WORDS:
            warnings.append(
                f"warning: only {share:.0%} of the words written by {run} occur in {target}: was it trained on these "
                "languages?"
            )
            say(warnings[-1])
    scores, signatures = paired_bootstrap(translations, references, tokenize, lowercase=lowercase)
    search = "greedy" if settings.beam == 1 else f"beam {settings.beam}"
    table = ResultTable(f"{len(sources):,} lines of {source.name}, {search}", _columns(), _rows(scores))
    report = Report("Runs", machine_info(), [table], [*_notes(str(runs[0]), signatures), *warnings])
    return ModelComparison("runs", report, [_figure(source.name, scores["BLEU"])])


def _check_runs(runs: Sequence[Path], *, trust_code: bool) -> None:
    """Raise an error unless there are two or more different runs that translate the same languages; see `compare`."""
    if len({run.resolve() for run in runs}) != len(runs) or len(runs) < 2:
        names = ", ".join(map(str, runs)) or "none"
        raise ArgumentError(f"a comparison needs two or more different runs, got {names}")
    languages: dict[str, Path] = {}
    for run in runs:
        TranslationTask().check_config(run, config := read_config(run))
        check_code(run, config, trust_code=trust_code)
        if config.source_language and config.target_language:
            languages.setdefault(config.languages, run)
    if len(languages) > 1:
        translates = " and ".join(f"{run} translates {pair}" for pair, run in languages.items())
        raise ArgumentError(f"a comparison needs runs of the same languages: {translates}")


def _notes(first: str, signatures: Mapping[str, str]) -> list[str]:
    return [
        f"Differences (Δ) are from the first run, {first}. ± is half of a 95 % interval, and p the probability of a "
        "difference at least this large by chance, from sacreBLEU's paired bootstrap with "
        f"{PAIRED_RESAMPLES:,} resamples (Koehn 2004). Below 0.05, one run is commonly called better than the other on "
        "similar text; another seed of the same training may differ as much.",
        f"BLEU: {signatures['BLEU']}. chrF2: {signatures['chrF2']}.",
    ]


def _figure(file: str, scores: Mapping[str, PairedScore]) -> Figure:
    points = [
        Point(name, score.score, score.score - score.half_interval, score.score + score.half_interval)
        for name, score in scores.items()
    ]
    title = f"BLEU of runs on {file}, with 95 % intervals"
    return Figure("runs", title, "run", "BLEU", [Series("BLEU", points)], kind="dots")


def share_of_words(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of the translations' words that occur in the references; 1 if either has no words."""
    words = [word for line in translations for word in WORD.findall(line.lower())]
    reference_words = {word for line in references for word in WORD.findall(line.lower())}
    return sum(word in reference_words for word in words) / len(words) if words and reference_words else 1.0


def _columns() -> list[Column]:
    columns = [Column("run", "run")]
    for title, key in METRICS.items():
        columns += [Column(key, title), Column(f"{key}_difference", "Δ", "+.2f"), Column(f"{key}_p", "p", ".3f")]
    return columns


def _rows(scores: dict[str, dict[str, PairedScore]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for run in scores["BLEU"]:
        row: dict[str, Any] = {"run": run}
        for title, key in METRICS.items():
            score, first = scores[title][run], next(iter(scores[title].values()))
            row |= {key: f"{score.score:.2f} ± {score.half_interval:.2f}", f"{key}_values": score._asdict()}
            row |= {} if score is first else {f"{key}_difference": score.score - first.score, f"{key}_p": score.p_value}
        rows.append(row)
    return rows
