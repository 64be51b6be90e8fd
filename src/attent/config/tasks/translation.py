"""Translation: from one text to another, whatever the two are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attent.config.corpora import Material, borrowed, material
from attent.config.settings import RunSettings
from attent.config.tasks.task import Judged, Learnt, Results, Say, Task
from attent.data.batches import BatchSize, Bitext
from attent.data.dates.corpus import TARGET_YEAR
from attent.data.text import Pair
from attent.decoding.translator import Translator
from attent.evaluation.alignment import aligned
from attent.evaluation.exact_match import exact_match
from attent.models.encoder_decoder import EncoderDecoder
from attent.training.loss import LossFunction, loss_of, mean_loss
from attent.training.samples import samples


class Translation(Task[Material]):
    """Learns pairs of source and target: dates that are made, or text that is read."""

    @property
    def loss(self) -> LossFunction:
        return loss_of

    def corpus(self, settings: RunSettings) -> Material:
        return material(settings)

    def learn(self, corpus: Material) -> Learnt:
        return Learnt(corpus.kinds, corpus.learn())

    def encoded(self, corpus: Material, learnt: Learnt) -> Bitext:
        return corpus.bitext(*learnt.tokenizers)

    def borrowed(self, settings: RunSettings, folder: Path, learnt: Learnt) -> Bitext:
        return borrowed(settings, folder, *learnt.tokenizers)

    def judged(self, model: EncoderDecoder[Any], corpus: Material, learnt: Learnt, settings: RunSettings) -> Judged:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return _Judged(Translator(model, *learnt.tokenizers), corpus, size)


class _Judged(Judged):
    def __init__(self, translator: Translator, corpus: Material, size: BatchSize) -> None:
        self._translator, self._corpus, self._size = translator, corpus, size
        self._held_out = Bitext(corpus.validation, translator.source_tokenizer, translator.target_tokenizer)

    def validate(self, say: Say) -> dict[str, float]:
        corpus = self._corpus
        if not corpus.validation:
            return {}
        pairs = corpus.validation[: corpus.translated]
        translations = self._translator.translate([pair.source for pair in pairs])
        for sample in samples(pairs, translations):
            say(str(sample))
        loss = mean_loss(self._translator.model, self._held_out, self._size)
        return {"loss": loss} | corpus.measure(translations, [pair.target for pair in pairs])

    def results(self, last: Mapping[str, float]) -> Results:
        found = judge(self._translator, self._corpus.held_out)
        return found or {"validation": {"pairs": len(self._corpus.validation), **last}}


def judge(translator: Translator, held_out: Mapping[str, Sequence[Pair]]) -> Results:
    """Each test set's scores in per cent: exact match, and how often the step that emits a year's digit looks at the year.

    A model without attention to the source has no year alignment.
    """
    return {name: dict(_scores(translator, pairs)) for name, pairs in held_out.items() if pairs}


def matches(translator: Translator, pairs: Sequence[Pair]) -> float:
    """Exact match of pairs' translations, in per cent."""
    return exact_match(translator.translate([pair.source for pair in pairs]), [pair.target for pair in pairs])


def _scores(translator: Translator, pairs: Sequence[Pair]) -> Mapping[str, float]:
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    scores: dict[str, float] = {"pairs": len(pairs), "exact_match": matches(translator, pairs)}
    if any(name.endswith("cross_attention") for name, _ in translator.model.named_modules()):
        scores["year_alignment"] = aligned(translator.model, pairs, *tokenizers, targets=TARGET_YEAR).share
    return scores
