"""Export a run to another inference engine, load that engine, and compare it with our own on a sample of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import ValidationError

from attent.errors import AttentError, DataError, RunError, check_known
from attent.formats import manifest as manifests
from attent.formats.manifest import EXPORTS, MANIFEST
from attent.runs.config import RunConfig, read_config
from attent.runs.durable import check_links, new_folder
from attent.runs.folder import read, read_tokenizers
from attent.search.settings import SearchSettings
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.generated import input_check
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.evaluation import bleu, chrf
from attent.tasks.translation.task import TranslationTask
from attent.tasks.translation.translator import Translator
from attent.text.corpus import drop_long, encode_pairs, pair_corpus
from attent.text.readers import STANDARD_INPUT, read_lines, read_pairs, read_parallel, read_with_references
from attent.text.settings import FILES, TextSettings, limit_length
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import SPECIALS, Tokenizer

# The number of lines to compare: enough to show differences, and translated within seconds.
LINES = 64
# The number of pairs to compare, also by BLEU.
PAIRS = 200
SEARCHES = {"greedy": SearchSettings(), "beam 5": SearchSettings(beam=5)}
# Maximum tokens of a random line, for runs whose own text is not available.
MAX_RANDOM_TOKENS = 12
# The modules of engines, which have `write` and `load`.
ENGINES = {"ctranslate2": "attent.formats.ctranslate2", "onnx": "attent.formats.onnx"}


@dataclass(frozen=True)
class Sample:
    """Lines on which two engines are compared.

    Args:
        lines: the sources.
        references: reference translations of the lines, or None.
        origin: the origin of the lines, for the report.
    """

    lines: Sequence[str]
    references: Sequence[str] | None
    origin: str

    @classmethod
    def of_pairs(cls, pairs: Iterable[Pair], origin: str) -> Sample:
        """Return the first pairs as a sample.

        Raises:
            DataError: there are no pairs.
        """
        first = list(islice((pair for pair in pairs if pair.source), PAIRS))
        if not first:
            raise DataError(f"{origin} contains no pairs")
        return cls([pair.source for pair in first], [pair.target for pair in first], origin)


@dataclass(frozen=True)
class Difference:
    """A line that the two engines translate differently."""

    source: str
    expected: str
    actual: str


@dataclass(frozen=True)
class Comparison:
    """Differences between two engines' translations of a sample.

    Args:
        lines: the number of lines.
        differences: the lines with different translations, by the name of the search.
        scores: BLEU and chrF2 of attent's own engine and of the other, by the name of the search; empty without
            references.
        origin: the origin of the lines.
    """

    lines: int
    differences: dict[str, list[Difference]]
    scores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    origin: str = ""

    def report(self, engine: str, limit: int = 3) -> list[str]:
        """Return a line about the sample, a line for each search, and the first few differences.

        Args:
            engine: the name of the other engine, with its precision.
            limit: the maximum number of differences shown for each search.
        """
        report = [f"compared on {self.lines} lines of {self.origin}"] if self.origin else []
        for search, differences in self.differences.items():
            report.append(f"{search}: {len(differences)} of {self.lines} lines differ from attent's own")
            if search in self.scores:
                values = zip(("attent", engine), self.scores[search], strict=True)
                report.append(
                    "  " + "; ".join(f"{name}: BLEU {score[0]:.2f}, chrF2 {score[1]:.2f}" for name, score in values)
                )
            for line in differences[:limit]:
                report += [f"  {line.source}", f"    attent: {line.expected}", f"    {engine}: {line.actual}"]
        return report

    def counts(self) -> dict[str, Any]:
        """Return the numbers of lines and of differences, and BLEU and chrF2, for the manifest."""
        scores = {f"{search} BLEU and chrF2": values for search, values in self.scores.items()}
        return (
            {"lines": self.lines}
            | {search: len(differences) for search, differences in self.differences.items()}
            | scores
        )


def compare(reference: Engine, engine: Engine, sample: Sample) -> Comparison:
    """Translate a sample by both engines, greedily and with a beam of 5."""
    differences: dict[str, list[Difference]] = {}
    scores: dict[str, list[tuple[float, float]]] = {}
    for name, settings in SEARCHES.items():
        expected, actual = (
            [results[0].text for results in each.search(sample.lines, settings)] for each in (reference, engine)
        )
        lines = (Difference(*texts) for texts in zip(sample.lines, expected, actual, strict=True))
        differences[name] = [line for line in lines if line.expected != line.actual]
        if references := sample.references:
            scores[name] = [
                (bleu(texts, references).score, chrf(texts, references).score) for texts in (expected, actual)
            ]
    return Comparison(len(sample.lines), differences, scores, sample.origin)


def sample_of(
    config: RunConfig,
    tokenizers: tuple[Tokenizer, Tokenizer],
    longest: int | None = None,
    source: Path | None = None,
    target: Path | None = None,
) -> Sample:
    """Return lines for a comparison: those of a file, or the run's validation set, or random tokens.

    Args:
        config: the run's config.
        tokenizers: its tokenizers of sources and targets.
        longest: the maximum number of tokens that its model can read; None for no limit.
        source: a file of lines to translate.
        target: a file of their references.

    Raises:
        ArgumentError: lines and references differ in number.
        DataError: one of these files cannot be read.
    """
    if source is not None and target is not None:
        return Sample.of_pairs(map(Pair, *read_with_references(source, target)), f"{source} and {target}")
    if source is not None:
        lines = list(islice((line for line in read_lines(source) if line), LINES))
        return Sample(
            lines or _random_lines(tokenizers[0]), None, str(source) if lines else f"random tokens: {source} is empty"
        )
    try:
        return Sample.of_pairs(_validation(config, tokenizers, longest), "the run's validation")
    # the files of the run may have been deleted or changed
    except (AttentError, ValidationError) as error:
        reason = str(error) if isinstance(error, AttentError) else "config.json names none"
        origin = (
            f"random tokens: the run's validation pairs are not available ({reason}); name lines with --source FILE "
            "--target FILE"
        )
        return Sample(_random_lines(tokenizers[0]), None, origin)


def _validation(config: RunConfig, tokenizers: tuple[Tokenizer, Tokenizer], longest: int | None) -> Sequence[Pair]:
    """Return the pairs that a run was validated on; raise if they cannot be read or may be in its training data."""
    if "dates" in config.corpus:
        settings = DatesSettings.model_validate(config.corpus["dates"]).model_copy(update={"training_pairs": 1})
        return dates(settings).validation
    text = TextSettings.model_validate(config.corpus.get("text", {}))
    if STANDARD_INPUT in (getattr(text, name) for name in FILES):
        raise DataError("it was trained on standard input")
    limited = limit_length(text, longest, reserved=1)
    if text.valid is not None:
        pairs = [pair for _, pair in read_pairs(text.valid, ReadReport(text.valid))]
    elif text.valid_source is not None and text.valid_target is not None:
        pairs = [pair for _, pair in read_parallel(text.valid_source, text.valid_target, ReadReport(text.valid_source))]
    else:
        corpus = pair_corpus(text)
        pairs = list(corpus.validation)
        digest = encode_pairs(corpus, limited, *tokenizers, length_multiple=1).digest()
        if " ".join(map(str, digest)) != config.digests.get("train"):
            raise DataError("its files have changed, and the pairs split off now may be in its training data")
    return drop_long(pairs, range(len(pairs)), tokenizers, [limited.maximum_length] * 2, ReadReport("validation"))


def _random_lines(tokenizer: Tokenizer) -> list[str]:
    """Return lines of random pieces, always the same ones."""
    generator = np.random.default_rng(0)
    lines = (
        generator.integers(SPECIALS, tokenizer.size, generator.integers(1, MAX_RANDOM_TOKENS)).tolist()
        for _ in range(LINES)
    )
    return [line for line in map(tokenizer.decode, lines) if line] if tokenizer.size > SPECIALS else []


def export(
    run: Path,
    engine: str,
    out: Path | None = None,
    *,
    quantization: str | None = None,
    sample: Path | None = None,
    references: Path | None = None,
    trust_code: bool = False,
) -> tuple[Path, Comparison]:
    """Write a run's model in another engine's format, and compare the two engines on a sample of lines.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        out: the output folder, which may contain an older export; RUN/export/ENGINE by default.
        quantization: the type of the stored weights, in the engine's spelling.
        sample: a file of lines to compare on; by default the run's validation pairs, or random tokens if these cannot
            be read.
        references: a file of references of these lines, for BLEU and chrF2.
        trust_code: True to import modules named by the run.

    Returns:
        The folder, and the comparison.

    Raises:
        ArgumentError: the engine cannot express the model, or has no such quantization.
        RunError: the run is damaged, or the folder cannot be written.
        AttentError: a package is not installed.
        UnknownNameError: the engine is unknown.
    """
    module, target = _module(engine), check_target(run, engine, out)
    TranslationTask().check_config(run, read_config(run))
    identity = manifests.identity(run)
    loaded = read(run, trust_code=trust_code)
    tokenizers = loaded.source_tokenizer, loaded.target_tokenizer
    lines = sample_of(loaded.config, tokenizers, loaded.model.longest, sample, references)
    with new_folder(target) as folder:
        manifest = module.write(loaded, str(run), folder, quantization)
        comparison = compare(Translator(loaded.model, *tokenizers), module.load(folder, manifest, *tokenizers), lines)
        manifest.run, manifest.comparison = identity, comparison.counts()
        manifests.write(manifest, folder)
    return target, comparison


def load(run: Path, engine: str, folder: Path | None = None) -> Engine:
    """Load an engine with the export of a run.

    Args:
        run: the run folder.
        engine: "ctranslate2" or "onnx".
        folder: the folder of the export; RUN/export/ENGINE by default.

    Raises:
        ArgumentError: there is no export, or it was made from another state of the run.
        RunError: the run or the export is damaged.
        AttentError: a package is not installed.
        UnknownNameError: the engine is unknown.
    """
    module, source = _module(engine), folder_of(run, engine, folder)
    config = read_config(run)
    TranslationTask().check_config(run, config)
    manifest = manifests.read(source, engine, run)
    return module.load(source, manifest, *read_tokenizers(run, config), input_check(config.corpus))


def check_target(run: Path, engine: str, out: Path | None) -> Path:
    """Return the folder to write an export to, RUN/export/ENGINE by default.

    Raises:
        RunError: it contains something other than an export, or the default folder is a symbolic link.
    """
    target = folder_of(run, engine, out)
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} already exists and is not an export")
    if out is None:
        check_links(run / EXPORTS, target)
    return target


def folder_of(run: Path, engine: str, folder: Path | None = None) -> Path:
    """Return the folder of an export, RUN/export/ENGINE by default."""
    return run / EXPORTS / engine if folder is None else folder


def _module(engine: str) -> ModuleType:
    check_known("engine", engine, ENGINES)
    return import_module(ENGINES[engine])
