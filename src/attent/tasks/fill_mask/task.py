"""Masked language modelling: words of plain text are masked and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.tasks.fill_mask.examples import MaskedBatch, MaskedLines
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import TextCorpus, encode_lines, line_corpus, open_lines
from attent.text.readers import OVER_LONG
from attent.text.settings import LinesSettings, limit_length
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast


def masked_lm_cross_entropy(
    model: EncoderModel, batch: MaskedBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's masked tokens in nats.

        −1/N Σ_n log p(token n | the line with its masks)

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805.
    """
    with autocast(batch.token_ids.device, precision):
        features = model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions]
        layer = model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, batch.labels, label_smoothing)


@torch.no_grad()
def masked_lm_scores(model: EncoderModel, data: MaskedLines, size: BatchSize) -> tuple[float, float]:
    """Return the mean cross entropy of masked tokens in nats, and the percentage of them that the model predicts.

    The same tokens are masked on every call, and all of them by MASK.

    Args:
        model: in evaluation mode.
        data: at least one line.
        size: of the batches.
    """
    device, total, correct, tokens = next(model.parameters()).device, 0.0, 0, 0
    for _, batch in data.sorted_batches(size):
        batch = batch.to(device)
        logits = model.output(model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions])  # (N, V)
        total += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        correct += int((logits.argmax(-1) == batch.labels).sum())
        tokens += batch.tokens
    return total / tokens, 100 * correct / tokens


@dataclass(frozen=True)
class LinesCorpus:
    """Lines of text; see `attent.tasks.task.TaskCorpus`."""

    text: TextCorpus[str]
    settings: LinesSettings

    @property
    def table(self) -> dict[str, Any]:
        """Return the settings for the run folder."""
        return {"lines": self.settings.model_dump(mode="json")}

    def report(self) -> list[str]:
        """Return lines about all that was read."""
        return [line for report in self.text.reports for line in report.summary()]

    def share(self, examples: Any) -> Path:
        """Return the folder of the encoded lines."""
        return self.text.folder.path


class MaskedLMTask(Task[LinesCorpus]):
    """Learns to predict masked words from the words around them."""

    loss = staticmethod(masked_lm_cross_entropy)

    def corpus(self, settings: RunSettings) -> LinesCorpus:
        assert settings.lines is not None
        return LinesCorpus(line_corpus(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: LinesCorpus) -> Vocabularies:
        tokenizer = learn(corpus.settings.tokenizer, corpus.text.train, corpus.settings.size)
        return Vocabularies(
            {"text": corpus.settings.tokenizer}, (tokenizer,), sizes=(tokenizer.size + 1, tokenizer.size)
        )

    def encode(self, corpus: LinesCorpus, vocabularies: Vocabularies) -> MaskedLines:
        (tokenizer,), settings = vocabularies.tokenizers, limit_length(corpus.settings, vocabularies.longest)
        return _masked_lines(encode_lines(corpus.text, tokenizer, settings.maximum_length), tokenizer, settings)

    def open_shared(self, settings: RunSettings, folder: Path, vocabularies: Vocabularies) -> MaskedLines:
        assert settings.lines is not None
        (tokenizer,) = vocabularies.tokenizers
        return _masked_lines(open_lines(folder), tokenizer, settings.lines)

    def evaluator(
        self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, settings: RunSettings
    ) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return MaskedLMEvaluator(model, corpus, vocabularies, size)


class MaskedLMEvaluator(Evaluator):
    """Evaluates a masked language model on its validation lines."""

    def __init__(self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, size: BatchSize) -> None:
        (tokenizer,), settings = vocabularies.tokenizers, limit_length(corpus.settings, model.longest)
        encoded = drop_long_lines(corpus, tokenizer, settings.maximum_length)
        self._model, self._size, self._lines = (
            model,
            size,
            MaskedLines(Sequences(encoded), tokenizer.size, settings.blanks),
        )

    def validate(self, say: Say) -> dict[str, float]:
        if not len(self._lines):
            return {}
        loss, accuracy = masked_lm_scores(self._model, self._lines, self._size)
        return {"loss": loss, "accuracy": accuracy}

    def results(self, last: Mapping[str, float]) -> Results:
        return {"validation": {"lines": len(self._lines), **last}}


def drop_long_lines(corpus: LinesCorpus, tokenizer: Tokenizer, maximum_length: int | None) -> list[list[int]]:
    """Encode the validation lines, but for those with more tokens than a maximum, which are reported."""
    encoded: list[list[int]] = []
    for row, line in enumerate(corpus.text.validation):
        tokens = tokenizer.encode(line)
        if maximum_length is None or len(tokens) <= maximum_length:
            encoded.append(tokens)
        else:
            corpus.text.reports[-1].drop(OVER_LONG, corpus.text.validation.line_number(row))
    return encoded


def _masked_lines(lines: Sequences, tokenizer: Tokenizer, settings: LinesSettings) -> MaskedLines:
    return MaskedLines(lines, tokenizer.size, settings.blanks, length_multiple=1)
