"""Guessing blanks: from plain text, of which some words are hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attent.data import monolingual as files
from attent.data.batches import BatchSize, Sequences
from attent.data.corpus import TextCorpus
from attent.data.masked_lm import MaskedLines
from attent.data.readers import OVER_LONG
from attent.data.settings import LinesSettings, limit_length
from attent.models.encoder import EncoderModel
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.training.loss import LossFunction, masked_lm_loss, masked_lm_scores


@dataclass(frozen=True)
class MaskedLMCorpus:
    """A corpus of lines as a recipe uses it; see `attent.tasks.task.Corpus`."""

    text: TextCorpus
    settings: LinesSettings

    @property
    def table(self) -> dict[str, Any]:
        """As the run folder keeps it."""
        return {"lines": self.settings.model_dump(mode="json")}

    @property
    def said(self) -> Callable[[], list[str]]:
        return lambda: [line for report in self.text.reports for line in report.summary()]

    @property
    def lend(self) -> Callable[[Any], Path]:
        return lambda _: self.text.folder.path


class MaskedLMTask(Task[MaskedLMCorpus]):
    """Learns to tell hidden words of a line from those around them."""

    @property
    def loss(self) -> LossFunction:
        return masked_lm_loss

    def corpus(self, settings: RunSettings) -> MaskedLMCorpus:
        assert settings.lines is not None
        return MaskedLMCorpus(files.text(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: MaskedLMCorpus) -> Vocabularies:
        tokenizer = files.tokenizer(corpus.text, corpus.settings)
        return Vocabularies({"text": corpus.settings.tokenizer}, (tokenizer,), sizes=(tokenizer.size + 1, tokenizer.size))

    def encode(self, corpus: MaskedLMCorpus, learnt: Vocabularies) -> MaskedLines:
        return files.encoded(corpus.text, limit_length(corpus.settings, learnt.longest), *learnt.tokenizers, length_multiple=1)

    def open_shared(self, settings: RunSettings, folder: Path, learnt: Vocabularies) -> MaskedLines:
        assert settings.lines is not None
        return files.lent(folder, limit_length(settings.lines, learnt.longest), *learnt.tokenizers, length_multiple=1)

    def evaluator(self, model: EncoderModel, corpus: MaskedLMCorpus, learnt: Vocabularies, settings: RunSettings) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return MaskedLMEvaluator(model, corpus, learnt, size)


class MaskedLMEvaluator(Evaluator):
    """Evaluates a masked language model on its validation lines."""

    def __init__(self, model: EncoderModel, corpus: MaskedLMCorpus, learnt: Vocabularies, size: BatchSize) -> None:
        (tokenizer,), settings = learnt.tokenizers, limit_length(corpus.settings, model.longest)
        encoded: list[list[int]] = []
        for row, pair in enumerate(corpus.text.validation):
            if len(tokens := tokenizer.encode(pair.source)) <= settings.maximum_length:
                encoded.append(tokens)
            else:
                corpus.text.reports[-1].drop(OVER_LONG, corpus.text.validation.number(row))
        self._model, self._size, self._lines = model, size, MaskedLines(Sequences(encoded), tokenizer.size, settings.blanks)

    def validate(self, say: Say) -> dict[str, float]:
        if not len(self._lines):
            return {}
        loss, right = masked_lm_scores(self._model, self._lines, self._size)
        return {"loss": loss, "accuracy": right}

    def results(self, last: Mapping[str, float]) -> Results:
        return {"validation": {"lines": len(self._lines), **last}}
