"""Translation: pairs of source and target, generated dates or text files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from attent.alignment.aligner import align
from attent.alignment.error_rate import Agreement, agreement
from attent.models.model import EncoderDecoder
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.corpus import TARGET_YEAR, gold_links, tokenize_dates
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.tasks.translation.metrics import bleu, bleu_interval, bleu_tokenizer, chrf, exact_match
from attent.tasks.translation.translator import Translator
from attent.text import corpus as files
from attent.text.batches import BatchSize, Bitext
from attent.text.corpus import encode_pairs, learn_tokenizers, pair_corpus
from attent.text.disk_texts import DiskBitext, TemporaryFolder, save_bitext
from attent.text.report import ReadReport
from attent.text.settings import TextSettings, limit_length
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer, Tokenizer
from attent.text.units import spacing
from attent.training.loss import LossFunction, mean_loss, translation_cross_entropy
from attent.training.settings import TrainingSettings

Tokenizers = tuple[Tokenizer, Tokenizer]
# Decoding takes time: a validation translates this many pairs, while its loss is that of all. Fewer give a noisy BLEU:
# with 200 captions it varies by a point and a half between validations.
MAX_TRANSLATED = 1000
# The BLEU of fewer pairs is given with its interval: of ten it says little.
RELIABLE = 200
# Half the width of that interval, a result that is shown and not stored.
INTERVAL = "BLEU interval"
# Training pairs whose spacing is looked at.
MAX_SPACED = 5_000
# Translations to show after a validation.
SAMPLES = 3
# Validation pairs to hold in memory.
MAX_IN_MEMORY = 10_000


class DatesCorpus:
    """Generated dates, each side in characters.

    Attributes:
        table: the settings for the run folder.
        validation: pairs to validate on.
        held_out: test sets by name.
        kinds: of the source's and the target's tokenizer.
        spacing: of the training sources, see `attent.text.units`; None if it does not matter.
        translated: number of validation pairs to translate each time, spread over all of them.
    """

    def __init__(self, settings: DatesSettings) -> None:
        corpus = dates(settings)
        self.table = {"dates": settings.model_dump(mode="json")}
        self._train, self._folders = corpus.train, list[TemporaryFolder]()
        self.validation, self.held_out, self.translated = corpus.validation, corpus.held_out, len(corpus.validation)
        self.kinds = {"source": "char", "target": "char"}
        self.spacing = None

    def report(self) -> list[str]:
        """Return lines about all that was read."""
        return []

    def share(self, examples: Bitext) -> Path:
        """Save `encode`'s result to a folder that lives as long as the corpus."""
        self._folders.append(TemporaryFolder())
        save_bitext(examples, self._folders[-1].path / files.INDEX)
        return self._folders[-1].path

    def fitting(self, tokenizers: Tokenizers, limits: tuple[float, float]) -> Sequence[Pair]:
        """Return the validation pairs within limits on the tokens of source and target, and report the others."""
        return files.drop_long(
            self.validation, range(1, len(self.validation) + 1), tokenizers, limits, ReadReport("validation")
        )

    def learn_tokenizers(self) -> Tokenizers:
        """Learn the tokenizers of source and target."""
        return CharTokenizer.learn(pair.source for pair in self._train), CharTokenizer.learn(
            pair.target for pair in self._train
        )

    def encode(self, source: Tokenizer, target: Tokenizer, longest: int | None) -> Bitext:
        """Encode the training pairs, without those that have a side of more tokens than `longest`, BOS included."""
        return Bitext(self._train, source, target, length_multiple=1)

    def measure(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return scores by name."""
        return {"exact match": exact_match(translations, references)}

    def intervals(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return nothing: an exact match is counted."""
        return {}


class TextFilesCorpus:
    """Text from files, with the attributes and methods of `DatesCorpus`."""

    def __init__(self, settings: TextSettings) -> None:
        corpus = pair_corpus(settings)
        self.table = {"text": settings.model_dump(mode="json")}
        self._settings, self._text = settings, corpus
        self._reports, self._folder, self._lines = corpus.reports, corpus.folder, corpus.validation.line_numbers
        self._replay = corpus.replay
        # a small validation set is held in memory, so that the corpus can be freed once it is encoded
        self.validation = list(corpus.validation) if len(corpus.validation) <= MAX_IN_MEMORY else corpus.validation
        self.held_out, self.translated = dict[str, Sequence[Pair]](), MAX_TRANSLATED
        self.kinds = {side: settings.tokenizer_of(side)[0] for side in ("source", "target")}
        self.spacing = spacing(pair.source for pair in islice(corpus.train, MAX_SPACED))

    def report(self) -> list[str]:
        """Return lines about all that was read."""
        reports = self._reports if self._replay is None else (*self._reports, self._replay)
        return [line for report in reports for line in report.summary()]

    def share(self, examples: Bitext) -> Path:
        """Save `encode`'s result to a folder that lives as long as the corpus."""
        return self._folder.path

    def fitting(self, tokenizers: Tokenizers, limits: tuple[float, float]) -> Sequence[Pair]:
        """Return the validation pairs within limits on the tokens of source and target, and report the others."""
        bounds = [min(limit, self._settings.maximum_length) for limit in limits]
        return files.drop_long(self.validation, self._lines.tolist(), tokenizers, bounds, self._reports[-1])

    def learn_tokenizers(self) -> Tokenizers:
        """Learn the tokenizers of source and target."""
        assert self._text is not None
        return learn_tokenizers(self._text, self._settings)

    def encode(self, source: Tokenizer, target: Tokenizer, longest: int | None) -> Bitext:
        """Encode the training pairs, without those that have a side of more tokens than `longest`, BOS included."""
        assert self._text is not None
        bitext = encode_pairs(
            self._text, limit_length(self._settings, longest, reserved=1), source, target, length_multiple=1
        )
        self._text = None
        return bitext

    def measure(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return scores by name."""
        return {
            "exact match": exact_match(translations, references),
            "chrF2": chrf(translations, references).score,
            "BLEU": bleu(translations, references, bleu_tokenizer(self._settings.target_language)).score,
        }

    def intervals(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return half the width of BLEU's 95 % interval, by name, where there are few pairs."""
        if len(references) >= RELIABLE:
            return {}
        return {INTERVAL: bleu_interval(translations, references, bleu_tokenizer(self._settings.target_language))}


ParallelCorpus = DatesCorpus | TextFilesCorpus


def without_intervals(results: Results) -> Results:
    """Return the results that run folders and JSON hold, whose names do not depend on the number of pairs."""
    return {
        part: {name: score for name, score in scores.items() if name != INTERVAL} for part, scores in results.items()
    }


class TranslationTask(Task[ParallelCorpus]):
    """Learns to translate."""

    loss = staticmethod(translation_cross_entropy)

    def loss_for(self, training: TrainingSettings) -> LossFunction:
        return partial(translation_cross_entropy, r_drop=training.r_drop)

    def corpus(self, settings: RunSettings) -> ParallelCorpus:
        return DatesCorpus(settings.dates) if settings.text is None else TextFilesCorpus(settings.text)

    def learn_vocabularies(self, corpus: ParallelCorpus) -> Vocabularies:
        return Vocabularies(corpus.kinds, corpus.learn_tokenizers(), spacing=corpus.spacing)

    def encode(self, corpus: ParallelCorpus, vocabularies: Vocabularies) -> Bitext:
        source, target = vocabularies.tokenizers
        return corpus.encode(source, target, vocabularies.longest)

    def open_shared(self, settings: RunSettings, folder: Path, vocabularies: Vocabularies) -> Bitext:
        return DiskBitext(folder / files.INDEX, length_multiple=1)

    def evaluator(
        self, model: EncoderDecoder[Any], corpus: ParallelCorpus, vocabularies: Vocabularies, settings: RunSettings
    ) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        source, target = vocabularies.tokenizers
        return TranslationEvaluator(Translator(model, source, target), corpus, size)


class TranslationEvaluator(Evaluator):
    """Evaluates a translator on its corpus."""

    def __init__(self, translator: Translator, corpus: ParallelCorpus, size: BatchSize) -> None:
        self._translator, self._corpus, self._size = translator, corpus, size
        longest, longest_source = translator.model.longest, translator.longest_source
        # BOS takes a position too
        limits = (inf if longest_source is None else longest_source, inf if longest is None else longest - 1)
        validation = corpus.fitting((translator.source_tokenizer, translator.target_tokenizer), limits)
        self.rows, self._intervals = len(validation), dict[str, float]()
        self._validation = Bitext(validation, translator.source_tokenizer, translator.target_tokenizer)
        count = min(corpus.translated, len(validation))
        self._translated = [validation[number * len(validation) // count] for number in range(count)]

    def validate(self, say: Say) -> dict[str, float]:
        pairs = self._translated
        if not pairs:
            return {}
        translations = self._translator.translate([pair.source for pair in pairs], self.search)
        for line in sample_lines(pairs, translations):
            say(line)
        loss = mean_loss(self._translator.model, self._validation, self._size)
        references = [pair.target for pair in pairs]
        self._intervals = self._corpus.intervals(translations, references)
        return {"loss": loss} | self._corpus.measure(translations, references)

    def results(self, last: Mapping[str, float]) -> Results:
        validation = {
            "validation": {
                "pairs": len(self._validation),
                "translated": len(self._translated),
                **last,
                **self._intervals,
            }
        }
        return evaluate_generated(self._translator, self._corpus.held_out, self.search) or validation


def sample_lines(pairs: Sequence[Pair], translations: Sequence[str]) -> list[str]:
    """Write a few evenly spaced pairs with their translations, the same ones on every call.

    A wrong translation is corrected.
    """
    number = min(SAMPLES, len(pairs))
    rows = [(2 * position + 1) * len(pairs) // (2 * number) for position in range(number)]
    corrections = {row: f"  (right: {pairs[row].target})" for row in rows if translations[row] != pairs[row].target}
    return [f"  {pairs[row].source}  →  {translations[row]}{corrections.get(row, '')}" for row in rows]


def evaluate_generated(
    translator: Translator, held_out: Mapping[str, Sequence[Pair]], search: SearchSettings = GREEDY
) -> Results:
    """Return the scores of each test set of dates: exact match and year alignment in per cent, and AER, 0 to 1.

    Year alignment is the share of steps that produce a digit of the year and attend most to the year; AER is the
    alignment error rate against the links of `attent.tasks.dates.gold`. Both use the last layer and the mean over its
    heads; a model without attention to the source has neither.
    """
    return {name: _scores(translator, pairs, search) for name, pairs in held_out.items() if pairs}


def _scores(translator: Translator, pairs: Sequence[Pair], search: SearchSettings) -> dict[str, float]:
    translations = translator.translate([pair.source for pair in pairs], search)
    scores: dict[str, float] = {
        "pairs": len(pairs),
        "exact_match": exact_match(translations, [pair.target for pair in pairs]),
    }
    if any(name.endswith("cross_attention") for name, _ in translator.model.named_modules()):
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        alignments = align(translator.model, [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs])
        gold = [gold_links(pair) for pair in pairs]
        years = ([link for link in links if link[1] in TARGET_YEAR] for links in alignments)
        scores["year_alignment"] = 100 * sum(map(agreement, years, gold), Agreement()).precision
        scores["AER"] = sum(map(agreement, alignments, gold), Agreement()).error_rate
    return scores
