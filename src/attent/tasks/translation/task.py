"""Translation: pairs of source and target, generated dates or text files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from attent.errors import ArgumentError, DataError, refuse
from attent.models.model import EncoderDecoder
from attent.runs.config import RunConfig
from attent.search.score import PairScore
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.generated import held_out_digest, regenerate
from attent.tasks.evaluation import (
    Evaluation,
    Results,
    Say,
    readable_examples,
    result_lines,
)
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.tasks.translation.distillation import Distillation
from attent.tasks.translation.evaluation import (
    BleuJudge,
    LossJudge,
    bleu,
    bleu_tokenizer,
    chrf,
    evaluate_generated,
    evaluate_translations,
    exact_match,
)
from attent.tasks.translation.translator import Translator, load
from attent.text import corpus as files
from attent.text.batches import BatchSize, Bitext
from attent.text.corpus import encode_pairs, learn_tokenizers, pair_corpus
from attent.text.disk_texts import DiskBitext
from attent.text.readers import TextPair, chunks, read_with_references, split_pair
from attent.text.settings import TextSettings, limit_length
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import CharTokenizer, Tokenizer, unknown_pieces
from attent.text.units import spacing
from attent.training.loss import LossFunction, mean_loss, translation_cross_entropy
from attent.training.settings import TrainingSettings
from attent.views.build_scene import build_scene
from attent.views.scene import Scene

Tokenizers = tuple[Tokenizer, Tokenizer]
# Decoding takes time: validation translates at most this many pairs, but computes the loss on all. Fewer pairs give a
# noisy BLEU: with 200 captions, it varies by 1.5 points between validations.
MAX_TRANSLATED = 1000
# Pairs scored at once: enough to sort them by length, few enough to see results soon.
SCORED_LINES = 2048
# Training pairs from which the spacing is estimated.
MAX_SPACED = 5_000
# Translations to show after a validation.
SAMPLES = 3
# Validation pairs to hold in memory.
MAX_IN_MEMORY = 10_000


class DatesCorpus:
    """Generated dates, tokenized into characters on both sides.

    Attributes:
        table: the settings for the run folder.
        validation: pairs to validate on.
        held_out: test sets by name.
        kinds: kinds of the source and target tokenizers.
        spacing: spacing of the training sources, see `attent.text.units`; None if irrelevant.
        translated: number of validation pairs to translate each time, evenly spaced.
        folder: the folder of the encoded pairs; None if there is none.
    """

    folder: Path | None = None

    def __init__(self, settings: DatesSettings) -> None:
        corpus = dates(settings)
        self.table = {"dates": settings.model_dump(mode="json")}
        self._train = corpus.train
        self.validation, self.held_out, self.translated = corpus.validation, corpus.held_out, len(corpus.validation)
        self.kinds = {"source": "char", "target": "char"}
        self.spacing = None

    def report(self) -> list[str]:
        """Return report lines on the data read."""
        return []

    def fitting_validation(self, tokenizers: Tokenizers, limits: tuple[float, float]) -> Sequence[Pair]:
        """Return the validation pairs within the limits on source and target tokens, and report the others."""
        return files.drop_long(
            self.validation, range(1, len(self.validation) + 1), tokenizers, limits, ReadReport("validation")
        )

    def learn_tokenizers(self) -> Tokenizers:
        """Learn the tokenizers of source and target."""
        return CharTokenizer.learn(pair.source for pair in self._train), CharTokenizer.learn(
            pair.target for pair in self._train
        )

    def encode(self, source: Tokenizer, target: Tokenizer, longest: int | None) -> Bitext:
        """Encode the training pairs, except those with more than `longest` tokens on a side, BOS included."""
        return Bitext(self._train, source, target, length_multiple=1)

    def measure(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return scores by name."""
        return {"exact match": exact_match(translations, references)}


class TextFilesCorpus:
    """Pairs of text from files; attributes and methods as in `DatesCorpus`."""

    def __init__(self, settings: TextSettings) -> None:
        corpus = pair_corpus(settings)
        self.table = {"text": settings.model_dump(mode="json")}
        self._settings, self._text = settings, corpus
        self._reports, self._lines = corpus.reports, corpus.validation.line_numbers
        # lives as long as the corpus
        self._folder, self.folder = corpus.folder, corpus.folder.path
        self._replay = corpus.replay
        # a small validation set is held in memory, so that the corpus can be freed once it is encoded
        self.validation = list(corpus.validation) if len(corpus.validation) <= MAX_IN_MEMORY else corpus.validation
        self.held_out, self.translated = dict[str, Sequence[Pair]](), MAX_TRANSLATED
        self.kinds = {side: settings.tokenizer_of(side)[0] for side in ("source", "target")}
        self.spacing = spacing(pair.source for pair in islice(corpus.train, MAX_SPACED))

    def report(self) -> list[str]:
        """Return report lines on the data read."""
        reports = self._reports if self._replay is None else (*self._reports, self._replay)
        return [line for report in reports for line in report.summary()]

    def fitting_validation(self, tokenizers: Tokenizers, limits: tuple[float, float]) -> Sequence[Pair]:
        """Return the validation pairs within the limits on source and target tokens, and report the others."""
        bounds = [min(limit, self._settings.maximum_length) for limit in limits]
        return files.drop_long(self.validation, self._lines.tolist(), tokenizers, bounds, self._reports[-1])

    def learn_tokenizers(self) -> Tokenizers:
        """Learn the tokenizers of source and target."""
        assert self._text is not None
        return learn_tokenizers(self._text, self._settings)

    def encode(self, source: Tokenizer, target: Tokenizer, longest: int | None) -> Bitext:
        """Encode the training pairs, except those with more than `longest` tokens on a side, BOS included."""
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


ParallelCorpus = DatesCorpus | TextFilesCorpus


class TranslationTask(Task[ParallelCorpus]):
    """Learns to translate."""

    name = "translate"
    does = "translates"
    goal = "translate"
    command = "attent translate {run} TEXT"
    tokenizers = ("source", "target")
    model_kinds = ("transformer", "rnn")
    tables: ClassVar = {"dates": DatesSettings, "text": TextSettings}
    metrics = ("loss", "bleu")
    other_data = "--source FILE --target FILE evaluates it on other pairs"
    loss = staticmethod(translation_cross_entropy)
    load = staticmethod(load)

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def loss_for(self, training: TrainingSettings) -> LossFunction:
        return Distillation(training) if training.teacher else self.loss

    def inherited_tables(self, settings: TaskSettings, start: RunConfig) -> dict[str, Any]:
        """Return the table [text] with the languages of the start run, where the settings name none."""
        if settings.text is None:
            return {}
        languages = {"source_language": start.source_language, "target_language": start.target_language}
        unnamed = {name: language for name, language in languages.items() if getattr(settings.text, name) is None}
        return {"text": settings.text.model_copy(update=unnamed)}

    def corpus(self, settings: TaskSettings) -> ParallelCorpus:
        return DatesCorpus(settings.dates) if settings.text is None else TextFilesCorpus(settings.text)

    def held_out_digest(self, corpus: ParallelCorpus) -> str | None:
        return held_out_digest(corpus.held_out) if corpus.held_out else None

    def learn_vocabularies(self, corpus: ParallelCorpus) -> Vocabularies:
        return Vocabularies(corpus.kinds, corpus.learn_tokenizers(), spacing=corpus.spacing)

    def encode(self, corpus: ParallelCorpus, vocabularies: Vocabularies) -> Bitext:
        source, target = vocabularies.tokenizers
        return corpus.encode(source, target, vocabularies.longest)

    def open_shared(self, settings: TaskSettings, folder: Path, vocabularies: Vocabularies) -> Bitext:
        return DiskBitext(folder / files.INDEX, length_multiple=1)

    def evaluator(
        self, model: EncoderDecoder[Any], corpus: ParallelCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        source, target = vocabularies.tokenizers
        return TranslationEvaluator(Translator(model, source, target), corpus, size)

    def evaluate(
        self,
        run: TaskRun,
        say: Say,
        *,
        source: str | Path | None = None,
        target: str | Path | None = None,
        search: SearchSettings = GREEDY,
        tokenize: str | None = None,
        target_language: str | None = None,
        lowercase: bool = False,
    ) -> Evaluation:
        """Evaluate a run on lines and their references, or on the held-out data of its corpus.

        Args:
            run: the run.
            say: shows a message to the user.
            source: the file of lines to translate; held-out data by default.
            target: the file of their references.
            search: search settings.
            tokenize: sacreBLEU's tokenizer; by default, that of the target language.
            target_language: the target language; the run's own by default.
            lowercase: whether to compute BLEU and chrF2 on lowercased text.

        Raises:
            ArgumentError: options or files are inconsistent, or the corpus cannot be read again.
            DataError: a file cannot be read, or the corpus has changed.
        """
        if (source is None) != (target is None):
            raise ArgumentError(
                "lines to translate and their references are needed together: --source FILE --target FILE"
            )
        if source is not None and target is not None:
            translator: Translator = run.tool
            tokenize = tokenize or bleu_tokenizer(target_language or run.config.target_language)
            return evaluate_translations(translator, source, target, search, tokenize, say, lowercase=lowercase)
        of_files = {"--lowercase": lowercase, "--tokenize": tokenize, "--target-language": target_language}
        refuse(*((value, f"{option} is for --source FILE --target FILE") for option, value in of_files.items()))
        return self._evaluate_held_out(run, say, search)

    def _evaluate_held_out(self, run: TaskRun, say: Say, search: SearchSettings) -> Evaluation:
        """Evaluate on the validation set of a corpus from files, or on the held-out sets of a generated corpus."""
        tables, translator = run.config.corpus, run.tool
        results = run.validate(say, search) if "text" in tables else None
        if not results:
            corpus = regenerate(run.path, tables, run.config.digests.get("held out"))
            sizes = [f"{len(pairs)} pairs of {name}" for name, pairs in corpus.held_out.items()]
            say(f"translating {' and '.join(sizes)}")
            results = evaluate_generated(translator, corpus.held_out, search)
        return Evaluation(results, result_lines(results))

    def judge(
        self,
        run: TaskRun,
        file: str,
        metric: str,
        say: Say,
        *,
        limit: int | None = None,
        target: str | None = None,
        search: SearchSettings = GREEDY,
    ) -> LossJudge:
        """Return a judge of a run's heads on lines and their references.

        Args:
            run: the run.
            file: the file of lines.
            metric: "loss" of the references, or "bleu" of the run's own translations.
            say: shows a message to the user.
            limit: maximum number of pairs; all by default.
            target: the file of the references.
            search: search settings.

        Raises:
            ArgumentError, DataError: a file is missing, cannot be read, or has no line that the model can read.
        """
        if target is None:
            raise ArgumentError("lines to translate need their references: --target FILE")
        translator: Translator = run.tool
        lines = list(zip(*read_with_references(file, target), strict=True))[:limit]
        is_readable = [bool(pair[0]) and translator.can_read(*pair) for pair in lines]
        pairs = readable_examples(lines, is_readable, file, say)
        tokenize = bleu_tokenizer(run.config.target_language)
        return LossJudge(translator, pairs) if metric == "loss" else BleuJudge(translator, pairs, tokenize, search)

    def scores(self, run: TaskRun, lines: Iterable[str], name: str) -> Iterator[PairScore]:
        """Yield the score of each line: that of the target after the tab, given the source before it."""
        translator: Translator = run.tool

        def pairs() -> Iterator[TextPair]:
            for number, line in enumerate(lines, start=1):
                pair = split_pair(line, location := f"{name}, line {number}")
                if error := translator.length_error(*pair, translator.model.longest):
                    raise DataError(f"{location}: {error}")
                yield pair

        for chunk in chunks(pairs(), SCORED_LINES):
            yield from translator.score(chunk)

    def scene(self, run: TaskRun, text: str, *, gradients: bool = False, translation: str | None = None) -> Scene:
        """Return the attention of a run while it translates a text.

        Args:
            run: the run.
            text: the text to translate.
            gradients: see `Inference.scene`.
            translation: the translation to show; the run's own by default.
        """
        translator: Translator = run.tool
        source = translator.read(text)
        return build_scene(translator.map(source, translation, gradients=gradients), title=source.text)

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        translator: Translator = run.tool
        return [piece.strip() for piece in unknown_pieces(translator.read(text).text, translator.source_tokenizer)]


class TranslationEvaluator(Evaluator):
    """Evaluates a translator on its corpus."""

    def __init__(self, translator: Translator, corpus: ParallelCorpus, size: BatchSize) -> None:
        self._translator, self._corpus, self._size = translator, corpus, size
        longest, longest_source = translator.model.longest, translator.longest_source
        # BOS takes a position too
        limits = (inf if longest_source is None else longest_source, inf if longest is None else longest - 1)
        validation = corpus.fitting_validation((translator.source_tokenizer, translator.target_tokenizer), limits)
        self.rows = len(validation)
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
        return {"loss": loss} | self._corpus.measure(translations, [pair.target for pair in pairs])

    def results(self, last: Mapping[str, float]) -> Results:
        validation = {
            "validation": {
                "pairs": len(self._validation),
                "translated": len(self._translated),
                **last,
            }
        }
        return evaluate_generated(self._translator, self._corpus.held_out, self.search) or validation


def sample_lines(pairs: Sequence[Pair], translations: Sequence[str]) -> list[str]:
    """Format a few evenly spaced pairs with their translations, the same pairs on every call.

    Wrong translations are followed by their references.
    """
    number = min(SAMPLES, len(pairs))
    rows = [(2 * position + 1) * len(pairs) // (2 * number) for position in range(number)]
    corrections = {row: f"  (right: {pairs[row].target})" for row in rows if translations[row] != pairs[row].target}
    return [f"  {pairs[row].source}  →  {translations[row]}{corrections.get(row, '')}" for row in rows]
