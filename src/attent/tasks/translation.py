"""Translation: from one text to another, whatever the two are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from attent.data.batches import BatchSize, Bitext
from attent.data.dates.corpus import TARGET_YEAR
from attent.data.dates.gold import gold_links
from attent.data.gold import Link
from attent.data.text import Pair
from attent.decoding.translator import Translator
from attent.evaluation.aligner import align, tokenize_dates
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.metrics import exact_match
from attent.models.model import EncoderDecoder
from attent.tasks.corpora import ParallelCorpus, open_shared, parallel_corpus
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.training.loss import LossFunction, mean_loss, translation_loss
from attent.training.samples import samples


class TranslationTask(Task[ParallelCorpus]):
    """Learns pairs of source and target: dates that are made, or text that is read."""

    @property
    def loss(self) -> LossFunction:
        return translation_loss

    def corpus(self, settings: RunSettings) -> ParallelCorpus:
        return parallel_corpus(settings)

    def learn_vocabularies(self, corpus: ParallelCorpus) -> Vocabularies:
        return Vocabularies(corpus.kinds, corpus.learn())

    def encode(self, corpus: ParallelCorpus, learnt: Vocabularies) -> Bitext:
        source, target = learnt.tokenizers
        return corpus.bitext(source, target, learnt.longest)

    def open_shared(self, settings: RunSettings, folder: Path, learnt: Vocabularies) -> Bitext:
        source, target = learnt.tokenizers
        return open_shared(settings, folder, source, target, learnt.longest)

    def evaluator(self, model: EncoderDecoder[Any], corpus: ParallelCorpus, learnt: Vocabularies, settings: RunSettings) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        source, target = learnt.tokenizers
        return TranslationEvaluator(Translator(model, source, target), corpus, size)


class TranslationEvaluator(Evaluator):
    """Evaluates a translator on its corpus."""

    def __init__(self, translator: Translator, corpus: ParallelCorpus, size: BatchSize) -> None:
        self._translator, self._corpus, self._size = translator, corpus, size
        longest, most = translator.model.longest, translator.longest_source
        # BOS takes a place too
        limits = (inf if most is None else most, inf if longest is None else longest - 1)
        validation = corpus.fitting((translator.source_tokenizer, translator.target_tokenizer), limits)
        self._held_out = Bitext(validation, translator.source_tokenizer, translator.target_tokenizer)
        held, most = len(validation), min(corpus.translated, len(validation))
        self._translated = [validation[number * held // most] for number in range(most)]

    def validate(self, say: Say) -> dict[str, float]:
        pairs = self._translated
        if not pairs:
            return {}
        translations = self._translator.translate([pair.source for pair in pairs])
        for sample in samples(pairs, translations):
            say(str(sample))
        loss = mean_loss(self._translator.model, self._held_out, self._size)
        return {"loss": loss} | self._corpus.measure(translations, [pair.target for pair in pairs])

    def results(self, last: Mapping[str, float]) -> Results:
        found = evaluate_generated(self._translator, self._corpus.held_out)
        return found or {"validation": {"pairs": len(self._held_out), "translated": len(self._translated), **last}}


def evaluate_generated(translator: Translator, held_out: Mapping[str, Sequence[Pair]]) -> Results:
    """Each test set's scores: exact match and year alignment in per cent, and the alignment error rate, 0 to 1.

    Year alignment is how often the step that produces a digit of the year looks most at the year; the alignment error rate is that of
    `attent.evaluation.error_rate` beside the links of `attent.data.dates.gold`. Both are of the last layer and the mean over its
    heads; a model without attention to the source has neither.
    """
    return {name: dict(_scores(translator, pairs)) for name, pairs in held_out.items() if pairs}


def exact_match_of(translator: Translator, pairs: Sequence[Pair]) -> float:
    """Exact match of pairs' translations, in per cent."""
    return exact_match(translator.translate([pair.source for pair in pairs]), [pair.target for pair in pairs])


def _scores(translator: Translator, pairs: Sequence[Pair]) -> Mapping[str, float]:
    scores: dict[str, float] = {"pairs": len(pairs), "exact_match": exact_match_of(translator, pairs)}
    if any(name.endswith("cross_attention") for name, _ in translator.model.named_modules()):
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        found = align(translator.model, [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs])
        gold = [gold_links(pair) for pair in pairs]
        years = sum(map(agreement, map(_of_years, found), gold), Agreement())
        scores["year_alignment"] = 100 * years.precision
        scores["AER"] = sum(map(agreement, found, gold), Agreement()).error_rate
    return scores


def _of_years(links: Sequence[Link]) -> list[Link]:
    return [link for link in links if link[1] in TARGET_YEAR]
