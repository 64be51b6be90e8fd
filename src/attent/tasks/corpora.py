"""What a run learns from and is judged on: dates that are made, or text that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attent.data import corpus as files
from attent.data.batches import Bitext
from attent.data.dates import DatesSettings, dates
from attent.data.disk_pairs import WorkingFolder
from attent.data.index import DiskBitext, save_bitext
from attent.data.readers import ReadReport
from attent.data.settings import TextSettings, limit_length
from attent.data.text import Pair
from attent.data.tokenizer import CharTokenizer, Tokenizer
from attent.evaluation.metrics import bleu, chrf, exact_match
from attent.tasks.settings import RunSettings

Tokenizers = tuple[Tokenizer, Tokenizer]
# Decoding takes time: of a text's validation so many pairs are translated, while the loss is that of all. The BLEU of fewer says
# little about which weights are better: of 200 captions it goes up and down by a point and a half between validations.
TRANSLATED = 1000
# Pairs of validation that are held in memory.
HELD = 10_000


@dataclass(frozen=True)
class ParallelCorpus:
    """A corpus as a recipe uses it.

    Args:
        validation: pairs that are not trained on.
        held_out: test sets by name.
        kinds: of the source's and the target's tokenizer.
        fitting: those of them whose source and target have at most so many tokens, and no more than are trained on; reports the others.
        learn: learns the two tokenizers.
        bitext: encodes what is trained on, but for pairs with a side longer than so many tokens, BOS counted, if there is a limit.
        lend: puts what `bitext` made into a folder, from where `borrowed` opens it as long as this is kept.
        measure: translations and references → scores by name; the last is the one that training is judged by.
        translated: how many pairs of validation are translated each time, spread over all of them.
        said: what was done with every line, to be said once the pairs are encoded.
        table: the corpus' settings, for the run folder.
        folder: what is trained on lies there as long as this is kept.
    """

    validation: Sequence[Pair]
    held_out: Mapping[str, Sequence[Pair]]
    kinds: dict[str, str]
    fitting: Callable[[Tokenizers, tuple[float, float]], Sequence[Pair]]
    learn: Callable[[], Tokenizers]
    bitext: Callable[[Tokenizer, Tokenizer, int | None], Bitext]
    lend: Callable[[Bitext], Path]
    measure: Callable[[Sequence[str], Sequence[str]], dict[str, float]]
    translated: int
    said: Callable[[], list[str]]
    table: dict[str, Any]
    folder: WorkingFolder | None = None


def parallel_corpus(settings: RunSettings) -> ParallelCorpus:
    """The corpus that the settings name.

    Raises:
        ArgumentError, DataError: what making or reading it raises.
    """
    return of_dates(settings.dates) if settings.text is None else of_text(settings.text)


def open_shared(settings: RunSettings, folder: Path, source: Tokenizer, target: Tokenizer, longest: int | None = None) -> Bitext:
    """What another process of this machine has encoded and lent.

    Args:
        settings: what its material was made by.
        folder: where it put that.
        source: the tokenizer that it used.
        target: the tokenizer that it used.
        longest: as there.
    """
    if settings.text is None:
        return DiskBitext(folder / files.INDEX, length_multiple=1)
    return files.open_bitext(folder, limit_length(settings.text, longest, beside=1), source, target, length_multiple=1)


def of_dates(settings: DatesSettings) -> ParallelCorpus:
    """Dates, each side in characters."""
    corpus, folders = dates(settings), list[WorkingFolder]()

    def lend(encoded: Bitext) -> Path:
        folders.append(WorkingFolder())
        save_bitext(encoded, folders[-1].path / files.INDEX)
        return folders[-1].path

    return ParallelCorpus(
        validation=corpus.validation,
        held_out=corpus.held_out,
        kinds={"source": "char", "target": "char"},
        fitting=lambda tokenizers, most: files.drop_long(
            corpus.validation, range(1, len(corpus.validation) + 1), tokenizers, most, ReadReport("validation")
        ),
        learn=lambda: (
            CharTokenizer.learn(pair.source for pair in corpus.train),
            CharTokenizer.learn(pair.target for pair in corpus.train),
        ),
        bitext=lambda source, target, longest: Bitext(corpus.train, source, target, length_multiple=1),
        lend=lend,
        measure=lambda translations, references: {"exact match": exact_match(translations, references)},
        translated=len(corpus.validation),
        said=list,
        table={"dates": settings.model_dump(mode="json")},
    )


def of_text(settings: TextSettings) -> ParallelCorpus:
    """Text from files."""
    corpus = files.text(settings)
    reports, folder, texts = corpus.reports, corpus.folder, [corpus]
    # few enough to be held, so that nothing else need be once the others are encoded
    validation = list(corpus.validation) if len(corpus.validation) <= HELD else corpus.validation
    lines = corpus.validation.numbers
    del corpus

    def bitext(source: Tokenizer, target: Tokenizer, longest: int | None) -> Bitext:
        encoded = files.bitext(texts[0], limit_length(settings, longest, beside=1), source, target, length_multiple=1)
        if not settings.dropout:
            texts.clear()
        return encoded

    def fitting(tokenizers: Tokenizers, most: tuple[float, float]) -> Sequence[Pair]:
        limits = [min(limit, settings.maximum_length) for limit in most]
        return files.drop_long(validation, lines.tolist(), tokenizers, limits, reports[-1])

    return ParallelCorpus(
        validation=validation,
        fitting=fitting,
        held_out={},
        kinds={"source": settings.tokenizer_of("source")[0], "target": settings.tokenizer_of("target")[0]},
        learn=lambda: files.tokenizers(texts[0], settings),
        bitext=bitext,
        lend=lambda encoded: folder.path,
        measure=lambda translations, references: {
            "exact match": exact_match(translations, references),
            "chrF2": chrf(translations, references).score,
            "BLEU": bleu(translations, references).score,
        },
        translated=TRANSLATED,
        said=lambda: [line for report in reports for line in report.summary()],
        table={"text": settings.model_dump(mode="json")},
        folder=folder,
    )
